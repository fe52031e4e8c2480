"""The how-to pages as tests read them: their Python, what it is a part of, and what they say comes of it."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from redflow_sdk import Workflow
from redflow_sdk.workflow import AnyWorkflow
from tests.tidy.test_docs import DOCS, blocks

HOW_TO: Final = DOCS / "how-to"
PAGES: Final = sorted(HOW_TO.glob("*.md"))
CLAIM: Final = re.compile(r"`await client\.execute\((\w+)(?:, (.+?))?\)` is `(.+?)`[.;]")
"""What a page says that its workflow returns."""

PRINTED: Final = re.compile(r"print\(.*\)  # (.*)$", re.M)
"""What a page says that a line prints."""


def defining(page: Path) -> list[str]:
    """The blocks of the page that define workflows: a reader's module."""
    return [block for block in blocks(page, "python") if "@workflow" in block]


def calling(page: Path) -> list[str]:
    """The blocks of the page that only call: another module of the reader's, or what stands in an `async def`."""
    return [block for block in blocks(page, "python") if "@workflow" not in block]


def module_of(*parts: str) -> ModuleType:
    """A module `shop` with the code of blocks."""
    module = ModuleType("shop")
    for part in parts:
        exec(compile(part, "shop", "exec", dont_inherit=True), vars(module))  # of our own documents
    return module


def workflows_of(module: ModuleType) -> list[AnyWorkflow]:
    """The workflows that a module defines."""
    return [value for value in vars(module).values() if isinstance(value, Workflow)]


async def run_in_place(block: str, names: dict[str, object]) -> None:
    """Runs a block that awaits, as in the body of a program's main function."""
    code = compile(block, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    assert isinstance(code, CodeType)
    running = eval(code, names)  # of our own documents
    if inspect.isawaitable(running):
        await running
