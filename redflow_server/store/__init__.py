"""All knowledge of Redis: keys, scripts, connections. A transition of a run is one Lua script.

`lua/` lists the transitions, one file each; `store.py` has a typed method of the same name for each of them.
"""
