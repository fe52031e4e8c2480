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


def test_the_headers_say_which_messages_a_script_may_publish() -> None:
    marks = {
        "lane": b"local function lane_push(",
        "due": b"due_at(",
        "finished": b"local function tell_waiters(",
        "resolved": b"'resolved '",
        "stop": b"'stop '",
    }
    for name, script in load_scripts().items():
        said = re.search(r"^-- EMITS +(.+)$", (FOLDER / f"{name}.lua").read_text(), re.MULTILINE)
        # One that only asks when something is due has the function that says so, and does not call it.
        published = [word for word, mark in marks.items() if script.source.count(mark) > (word == "due")]
        assert (said[1].split(", ") if said else []) == published, name
