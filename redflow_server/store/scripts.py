"""Lua scripts: composed from `lua/*.lua` and `lua/lib/*.lua`, with what their headers declare.

A header is a purpose line and then, in this order, `KEYS`, `ARGS`, `RETURNS`, `EMITS` where messages are published,
`REPEAT` (whether a call may be repeated when its answer was lost), `BATCH yes` where calls of the same moment run as
the items of one call, and `ORDER last` where a call must not overtake earlier ones of its run. `--@include a b`, in a
script or an include, puts `lib/a.lua` and `lib/b.lua` before it, each once and after what it includes itself.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "lua"
_FIELD: Final = re.compile(r"-- (KEYS|ARGS|RETURNS|EMITS|REPEAT|BATCH|ORDER) +(\S.*)")
_MORE: Final = re.compile(r"-- {8,}(\S.*)")
_KEY_NAME: Final = re.compile(r"local (?:function )?(\w+)(?:\(.*\))? (?:= P|return P)")
_INCLUDE: Final = re.compile(r"--@include +(.+)")


class ScriptError(Exception):
    """A Lua file is not put together as it should be."""


@dataclass(frozen=True, slots=True)
class Script:
    """A composed script. `arguments` are the fixed ones; `tail` describes the list that may follow."""

    name: str
    source: bytes
    sha: bytes
    arguments: tuple[str, ...]
    tail: str
    is_repeatable: bool
    takes_many: bool
    goes_last: bool


@functools.cache
def load_scripts(folder: Path = FOLDER) -> Mapping[str, Script]:
    """All scripts by name, composed once. Raises ScriptError that names the file and what is wrong with it."""
    return {path.stem: load_script(path) for path in sorted(folder.glob("*.lua"))}


def load_script(path: Path) -> Script:
    """One script with its includes."""
    fields, body = _parse(path)
    missing = {"KEYS", "ARGS", "RETURNS", "REPEAT"} - fields.keys()
    if missing:
        raise ScriptError(f"{path.name}: the header lacks {', '.join(sorted(missing))}")
    if fields["REPEAT"] not in ("yes", "no"):
        raise ScriptError(f"{path.name}: REPEAT must be yes or no")
    arguments, _, tail = fields["ARGS"].partition(" ...")
    takes_many = fields.get("BATCH") == "yes"
    if takes_many:
        body = f"local function transition(ARGV)\n{body}end\n{_includes(path, ['batch'])[0]}"
    source = _only_used_keys("".join([*_includes(path, _named(path)), body])).encode()
    return Script(
        name=path.stem,
        source=source,
        sha=hashlib.sha1(source, usedforsecurity=False).hexdigest().encode(),
        arguments=tuple(arguments.split()),
        tail=tail,
        is_repeatable=fields["REPEAT"] == "yes",
        takes_many=takes_many,
        goes_last=fields.get("ORDER") == "last",
    )


def _parse(path: Path) -> tuple[dict[str, str], str]:
    """The header's fields and the body of a file."""
    fields: dict[str, str] = {}
    body: list[str] = []
    current = ""
    for line in path.read_text().splitlines(keepends=True):
        if body or not line.startswith("--"):
            body.append(line)
        elif field := _FIELD.match(line):
            current = field[1]
            fields[current] = field[2].strip()
        elif current and (more := _MORE.match(line)):
            fields[current] += " " + more[1].strip()
    if any(_INCLUDE.match(line) for line in body):
        raise ScriptError(f"{path.name}: includes stand in the header")
    return fields, "".join(body)


def _includes(path: Path, names: list[str]) -> list[str]:
    """The includes of a script and theirs, each after those it needs."""
    sources: dict[str, str] = {}

    def add(name: str, user: Path, users: tuple[str, ...]) -> None:
        if name in users:
            raise ScriptError(f"{user.name}: includes {name}, which includes it: {' > '.join((*users, name))}")
        if name in sources:
            return
        part = path.parent / "lib" / f"{name}.lua"
        if not part.is_file():
            raise ScriptError(f"{user.name}: includes {name}, but there is no lib/{name}.lua")
        for needed in _named(part):
            add(needed, part, (*users, name))
        sources[name] = part.read_text()

    for name in names:
        add(name, path, ())
    return list(sources.values())


def _named(path: Path) -> list[str]:
    """The includes that a file names."""
    lines = map(_INCLUDE.match, path.read_text().splitlines())
    names = [name for line in lines if line for name in line[1].split()]
    for name in names:
        if names.count(name) > 1:
            raise ScriptError(f"{path.name}: includes {name} twice")
    return names


def _only_used_keys(source: str) -> str:
    """Leaves out the key names that a script does not use: making them costs microseconds in every call."""
    used = Counter(re.findall(r"\w+", source))
    lines = source.splitlines(keepends=True)
    return "".join(line for line in lines if not (name := _KEY_NAME.match(line)) or used[name[1]] > 1)
