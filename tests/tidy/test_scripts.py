"""The Lua scripts are put together as their headers say, and agree with Python on the names of keys."""

from __future__ import annotations

import inspect
import re

from redflow_server.store.keys import Keys
from redflow_server.store.scripts import FOLDER, load_scripts
from redflow_server.store.store import Store


def test_each_script_has_a_method_of_its_name() -> None:
    methods = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    assert set(load_scripts()) == methods


def test_only_finish_writes_a_terminal_status() -> None:
    writers = [
        path.name
        for path in FOLDER.rglob("*.lua")
        if re.search(r"set_status\(run, status\)|'status', *'(succeeded|failed|canceled)'", path.read_text())
    ]
    assert sorted(writers) == ["finish.lua", "index.lua", "settle.lua"], "settle moves open runs only; see its branches"


def test_lua_and_python_name_the_same_keys() -> None:
    lua = (FOLDER / "lib" / "keys.lua").read_text()
    named = set(re.findall(r"local function (\w+)_(?:key|channel)", lua))
    named |= {name.lower() for name in re.findall(r"local ([A-Z_]{2,}) =", lua)}
    python = {name for name in vars(Keys) if not name.startswith("_") and name != "prefix"}
    assert named == python
