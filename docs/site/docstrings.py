"""Docstrings as the reference shows them: prose with `code` in single backticks, and indented examples.

What is named and has a place in the reference becomes a link to it, in backticks or, as exceptions are, without.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, get_origin

from public_names import FOR_ITSELF, named, spoken

if TYPE_CHECKING:  # the tests of this module do without
    from sphinx.application import Sphinx
    from sphinx.ext.autodoc import Options

CODE = re.compile(r"`([^`]+)`")
CAMEL_CASE = re.compile(r"(?<![\w.])(?:[A-Z][a-z]+){2,}(?![\w(])")
GIVEN: set[str] = set()
"""The full names of the classes that are shown without their constructors."""


def as_rst(text: str, owner: str) -> Iterator[str]:
    """The lines of a docstring of `owner`, a class or something in it, in reStructuredText."""
    for is_example, blocks in groupby(re.split(r"\n{2,}", text.strip("\n")), key=_is_example):
        joined = "\n\n".join(blocks)
        if is_example:
            yield from (".. code-block:: python", "", *textwrap.indent(textwrap.dedent(joined), "   ").splitlines(), "")
        else:
            yield from (*_prose(joined, owner).splitlines(), "")


def _is_example(block: str) -> bool:
    """Of a docstring of one sentence and an example, Python itself takes away what the example is indented by."""
    if block.startswith("    "):
        return True
    try:
        return bool(ast.parse(block))
    except SyntaxError:
        return False


def _prose(text: str, owner: str) -> str:
    parts = CODE.split(text)
    parts[::2] = [CAMEL_CASE.sub(_link_of_match, re.sub(r"([\\*|]|_\b)", r"\\\1", part)) for part in parts[::2]]
    parts[1::2] = [_code(part, owner) for part in parts[1::2]]
    # Markup of reStructuredText ends at a space or a mark.
    return re.sub(r"(?<=[`])\0(?=\w)", r"\\ ", "".join(parts)).replace("\0", "")


def _link_of_match(name: re.Match[str]) -> str:
    full = spoken().get(name[0])
    return f":py:obj:`{name[0]} <{full}>`" if full else name[0]


def _code(code: str, owner: str) -> str:
    """A literal, or a link to what it names: a name of the reference, or a member of the class that is described."""
    code = " ".join(code.split())
    full = named(code) or spoken().get(f"{owner}.{code}")
    return f":py:obj:`{code} <{full}>`\0" if full else f"``{code}``\0"


def _process(app: Sphinx, what: str, name: str, obj: object, options: Options, lines: list[str]) -> None:
    parts = name.split(".")
    owner = next((part for part in parts if part[:1].isupper()), "")
    if what != "module" and any(lines):
        lines[:] = [*as_rst("\n".join(lines), owner)]


def _skip(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: Options) -> bool | None:
    return True if FOR_ITSELF in (getattr(obj, "__doc__", "") or "") else None


def _signature(
    app: Sphinx, what: str, name: str, obj: object, options: Options, signature: str | None, returns: str | None
) -> tuple[str, None] | None:
    return ("", None) if signature is not None and name in GIVEN else None


def _bases(app: Sphinx, name: str, obj: object, options: Options, bases: list[object]) -> None:
    for base in [*bases]:
        if (kind := get_origin(base) or base).__name__.startswith("_"):
            bases[:] = [*kind.__bases__]
    bases[:] = [base for base in bases if "typing." not in str(base) and base is not object]


def setup(app: Sphinx) -> dict[str, object]:
    """The extension."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-bases", _bases)
    return {"parallel_read_safe": False}
