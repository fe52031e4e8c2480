"""What the pages of the reference list, and how documents and docstrings speak of it: `Client.start`."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PAGES = Path(__file__).resolve().parents[1] / "reference"
BLOCK = re.compile(r"^```\{(?P<kind>made|given)\} (?P<module>[\w.]+)\n(?P<names>.*?)^```$", re.M | re.S)
"""Names of a module: classes that a reader makes, and what the SDK gives, whose constructors are its own affair."""
FOR_ITSELF = "for the SDK itself"


@cache
def listed() -> tuple[str, ...]:
    """The full names on all pages, in their order."""
    return tuple(
        f"{block['module']}.{name}"
        for page in sorted(PAGES.glob("*.md"))
        for block in BLOCK.finditer(page.read_text())
        for name in block["names"].split()
    )


@cache
def spoken() -> dict[str, str]:
    """The full name of each listed object and of its public members, by how one speaks of it."""
    names = {}
    for full in listed():
        short = full.rpartition(".")[2]
        names[short] = full
        names |= {f"{short}.{member}": f"{full}.{member}" for member in _members(found(full))}
    return names


def named(code: str) -> str | None:
    """The full name of what a piece of code names: a listed class, or a member of one, be there such or not."""
    names = spoken()
    owner, dot, member = code.partition(".")
    if dot and owner in names and not owner.islower() and member.isidentifier():
        return f"{names[owner]}.{member}"
    return None if code.islower() else names.get(code)


def found(full: str) -> object:
    """The object of a full name."""
    module, _, name = full.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _members(owner: object) -> Iterator[str]:
    if not isinstance(owner, type):
        return
    fields = [field.name for field in dataclasses.fields(owner)] if dataclasses.is_dataclass(owner) else []
    for kind in owner.__mro__:
        if kind.__module__.startswith("redflow_"):
            for name in {**vars(kind), **kind.__annotations__, **dict.fromkeys(fields)}:
                if not name.startswith("_") and FOR_ITSELF not in (getattr(owner, name, None).__doc__ or ""):
                    yield name
