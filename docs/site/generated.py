"""Fills in the blocks of pages that are generated: `{made}` and `{given}` of names, `{commands}`, and `{wire}`."""

from __future__ import annotations

import dataclasses
import inspect
import re

import command_line
import docstrings
import wire
from public_names import BLOCK, found
from sphinx.application import Sphinx


def _objects(block: re.Match[str]) -> str:
    names = [f"{block['module']}.{name}" for name in block["names"].split()]
    if block["kind"] == "given":
        docstrings.GIVEN.update(names)
    return "\n".join(["```{eval-rst}", *(line for name in names for line in _described(name)), "```"])


def _described(name: str) -> list[str]:
    thing = found(name)
    if not inspect.isclass(thing):
        return [f".. auto{'function' if inspect.isroutine(thing) else 'data'}:: {name}", ""]
    kind = "exception" if issubclass(thing, BaseException) else "class"
    bases = any(base is not object and base.__module__ != "typing" for base in thing.__bases__)
    options = [":members:", ":inherited-members: RedflowError, BaseException, str"]
    options += [":show-inheritance:"] if bases else []
    options += [":undoc-members:"] if dataclasses.is_dataclass(thing) else []  # fields whose names say it all
    return [f".. auto{kind}:: {name}", *(f"   {option}" for option in options), ""]


def _fill(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname.startswith("docs/reference/"):
        text = BLOCK.sub(_objects, source[0])
        for name, written in (("commands", command_line.as_markdown), ("wire", wire.as_markdown)):
            text = re.sub(rf"^```\{{{name}\}}\n```$", lambda _, written=written: written(), text, flags=re.M)
        source[0] = text


def setup(app: Sphinx) -> dict[str, object]:
    """The extension."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": False}
