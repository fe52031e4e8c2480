"""Timers around the engine's passes. They hold no rules: what a pass does is in `engine/upkeep.py`.

Each module is one duty. `loop.py` is the timer itself, `timetable.py` knows when the next thing of each kind is due.
"""
