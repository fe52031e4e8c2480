"""The loader puts scripts together from their headers, and says of a wrong one which file it is and what is wrong."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from redflow_server.store.scripts import Script, ScriptError, load_script, load_scripts

HEADER = """\
-- Moves a thing.
--
-- KEYS     things
-- ARGS     now id
-- RETURNS  moved
-- REPEAT   yes
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of scripts."""
    (tmp_path / "lib").mkdir()
    return tmp_path


def write(folder: Path, text: str, name: str = "move") -> Path:
    path = folder / f"{name}.lua"
    path.write_text(text)
    return path


def load(folder: Path, text: str) -> Script:
    return load_script(write(folder, text))


def test_a_script_is_its_includes_in_the_order_given_and_then_its_body(folder: Path) -> None:
    write(folder / "lib", "local first = 1\n", "first")
    write(folder / "lib", "local second = first\n", "second")

    script = load(folder, f"{HEADER}--@include first second\n\nreturn second\n")

    source = script.source.decode()
    assert source.index("local first") < source.index("local second") < source.index("return second")
    assert script.name == "move"
    assert script.sha.decode() == hashlib.sha1(script.source).hexdigest()


def test_includes_may_stand_on_several_lines(folder: Path) -> None:
    write(folder / "lib", "local first = 1\n", "first")
    write(folder / "lib", "local second = first\n", "second")

    source = load(folder, f"{HEADER}--@include first\n--@include second\n\nreturn second\n").source.decode()

    assert source.index("local first") < source.index("local second")


def test_the_header_names_the_fixed_arguments_and_the_list_that_may_follow(folder: Path) -> None:
    fixed = load(folder, f"{HEADER}\nreturn 1\n")
    assert (fixed.arguments, fixed.tail) == (("now", "id"), "")

    listed = load(folder, f"{HEADER.replace('now id', 'now ... queue workflow')}\nreturn 1\n")
    assert listed.arguments == ("now",)
    assert listed.tail.split() == ["queue", "workflow"]


def test_a_field_goes_on_in_the_lines_below_it(folder: Path) -> None:
    script = load(folder, HEADER.replace("now id", "now id\n--          queue workflow") + "\nreturn 1\n")
    assert script.arguments == ("now", "id", "queue", "workflow")


@pytest.mark.parametrize(("word", "is_repeatable"), [("yes", True), ("no", False)])
def test_the_header_says_whether_a_call_may_be_repeated(folder: Path, word: str, is_repeatable: bool) -> None:
    script = load(folder, HEADER.replace("yes", word) + "\nreturn 1\n")
    assert script.is_repeatable is is_repeatable
    assert (script.takes_many, script.goes_last) == (False, False)


def test_a_script_of_many_items_gets_the_loop_over_them(folder: Path) -> None:
    write(folder / "lib", "return each(transition)\n", "batch")

    script = load(folder, f"{HEADER}-- BATCH    yes\n\nreturn ARGV[1]\n")

    assert script.takes_many
    source = script.source.decode()
    assert source.index("function transition") < source.index("return ARGV[1]") < source.index("each(transition)")


def test_a_script_may_have_to_go_last(folder: Path) -> None:
    assert load(folder, f"{HEADER}-- ORDER    last\n\nreturn 1\n").goes_last


def test_key_names_that_a_script_does_not_use_are_left_out(folder: Path) -> None:
    keys = """\
local USED = P .. ':used'
local UNUSED = P .. ':unused'
local function used_key(id) return P .. ':used:' .. id end
local function unused_key(id) return P .. ':unused:' .. id end
local P_OTHER = 1
"""
    write(folder / "lib", keys, "keys")

    source = load(folder, f"{HEADER}--@include keys\n\nreturn {{USED, used_key(1)}}\n").source.decode()

    assert "local USED" in source
    assert "function used_key" in source
    assert "UNUSED" not in source
    assert "unused_key" not in source
    assert "P_OTHER" in source, "only lines that make a key name may go"


def test_a_key_name_that_only_another_used_one_needs_stays(folder: Path) -> None:
    keys = "local BASE = P .. ':base'\nlocal function under_key(id) return P .. BASE .. id end\n"
    write(folder / "lib", keys, "keys")

    source = load(folder, f"{HEADER}--@include keys\n\nreturn under_key(1)\n").source.decode()

    assert "local BASE" in source


@pytest.mark.parametrize("field", ["KEYS", "ARGS", "RETURNS", "REPEAT"])
def test_a_header_without_a_field_is_refused(folder: Path, field: str) -> None:
    lines = [line for line in HEADER.splitlines(keepends=True) if not line.startswith(f"-- {field}")]
    with pytest.raises(ScriptError, match=rf"move\.lua.*lacks {field}"):
        load(folder, "".join(lines) + "\nreturn 1\n")


def test_a_file_without_a_header_is_refused_with_all_that_is_missing(folder: Path) -> None:
    with pytest.raises(ScriptError, match=r"move\.lua.*ARGS, KEYS, REPEAT, RETURNS"):
        load(folder, "return 1\n")


def test_a_field_below_the_header_does_not_count(folder: Path) -> None:
    with pytest.raises(ScriptError, match=r"move\.lua.*lacks REPEAT"):
        load(folder, HEADER.replace("-- REPEAT   yes\n", "\nlocal a = 1\n-- REPEAT   yes\n"))


@pytest.mark.parametrize("word", ["maybe", "true", "Yes", "yes, by compare-and-set"])
def test_repeat_is_yes_or_no(folder: Path, word: str) -> None:
    with pytest.raises(ScriptError, match=r"move\.lua.*REPEAT must be yes or no"):
        load(folder, HEADER.replace("yes", word) + "\nreturn 1\n")


def test_an_include_that_does_not_exist_is_refused(folder: Path) -> None:
    with pytest.raises(ScriptError, match=r"move\.lua.*no lib/nowhere\.lua"):
        load(folder, f"{HEADER}--@include nowhere\n\nreturn 1\n")


@pytest.mark.parametrize("includes", ["--@include first first\n", "--@include first\n--@include first\n"])
def test_an_include_that_comes_twice_is_refused(folder: Path, includes: str) -> None:
    write(folder / "lib", "local first = 1\n", "first")
    with pytest.raises(ScriptError, match=r"move\.lua.*includes first twice"):
        load(folder, f"{HEADER}{includes}\nreturn first\n")


def test_what_an_include_needs_comes_before_it_and_once(folder: Path) -> None:
    write(folder / "lib", "local first = 1\n", "first")
    (folder / "lib" / "third.lua").write_text("--@include first\nlocal third = first\n")
    (folder / "lib" / "fourth.lua").write_text("--@include third first\nlocal fourth = third\n")
    source = load(folder, f"{HEADER}--@include fourth third\n\nreturn fourth\n").source.decode()
    code = [line for line in source.splitlines() if line and not line.startswith("--")]
    assert code == ["local first = 1", "local third = first", "local fourth = third", "return fourth"]


def test_includes_that_need_each_other_are_refused(folder: Path) -> None:
    (folder / "lib" / "third.lua").write_text("--@include fourth\nlocal third = 3\n")
    (folder / "lib" / "fourth.lua").write_text("--@include third\nlocal fourth = 4\n")
    with pytest.raises(ScriptError, match=r"fourth\.lua: includes third, which includes it: third > fourth > third"):
        load(folder, f"{HEADER}--@include third\n\nreturn 1\n")


def test_every_script_that_ends_runs_has_what_their_ends_mean_for_others() -> None:
    ending = {name: script.source for name, script in load_scripts().items() if b"function finish(" in script.source}
    assert {"complete", "cancel", "reap", "expire", "fail_unknown"} <= ending.keys()
    assert all(
        b"function wake_awaiters(" in source and b"function withdraw_waits(" in source for source in ending.values()
    )


def test_an_include_in_the_body_is_refused(folder: Path) -> None:
    write(folder / "lib", "local first = 1\n", "first")
    with pytest.raises(ScriptError, match=r"move\.lua.*includes stand in the header"):
        load(folder, f"{HEADER}\nlocal a = 1\n--@include first\nreturn first\n")


def test_one_wrong_file_is_named_among_right_ones(folder: Path) -> None:
    write(folder, f"{HEADER}\nreturn 1\n", "right")
    write(folder, HEADER.replace("REPEAT   yes", "REPEAT   perhaps"), "wrong")
    with pytest.raises(ScriptError, match=r"^wrong\.lua"):
        load_scripts(folder)


def test_all_scripts_of_a_folder_are_found_by_name(folder: Path) -> None:
    for name in ("move", "stop"):
        write(folder, f"{HEADER}\nreturn '{name}'\n", name)
    write(folder / "lib", "local first = 1\n", "first")

    assert set(load_scripts(folder)) == {"move", "stop"}


TAKES_MEMORY = re.compile(r"redis\.call\('(?:SET|HSET|HSETNX|SADD|ZADD|INCR)'")
TAKE_IN = {"enqueue", "claim_prefix", "emit_event", "step_emit", "step_start", "fan_out", "fire_schedule", "try_write"}
"""Scripts that take new things in, and so are refused when memory is full."""
ONLY_READ = {"due", "due_schedules"}
"""Scripts that only read; what they include could write."""


def test_every_script_that_writes_begins_so_that_it_goes_on_when_memory_is_full_unless_it_takes_new_things_in() -> None:
    sources = {name: script.source.decode() for name, script in load_scripts().items()}
    writing = {name for name, source in sources.items() if TAKES_MEMORY.search(source)}
    relieved = {name for name, source in sources.items() if source.count("begin_writes()") > 1}
    assert {"claim", "complete", "register", "watch_run"} <= writing
    assert writing - relieved == TAKE_IN | ONLY_READ
