"""Makes types readable in signatures, which are made of what the modules of the SDK have when the site is built.

Modules are given the names that they import for type checkers alone, and aliases that are something else at run time
become what checkers see.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from types import ModuleType

from sphinx.application import Sphinx

import redflow_sdk
from redflow_sdk import records


class JsonValue:
    """What comes where no type is named: None, bool, int, float, str, and lists, and dicts with str keys, of these.

    It is an alias, for annotations. A value that is annotated with it is read as it is.
    """


class Given:
    """An alias whose parameter is all that it means."""

    def __class_getitem__(cls, parameter: object) -> object:
        return parameter


JsonValue.__module__ = "redflow_sdk"
AS_CHECKERS_SEE = {"JsonValue": JsonValue, "Given": Given, "Recorded": JsonValue | records.Payload | bytes}


def _complete(module: ModuleType) -> None:
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse:
            exec("\n".join(map(ast.unparse, node.body)), vars(module))  # noqa: S102  # imports of our own code
    vars(module).update((name, alias) for name, alias in AS_CHECKERS_SEE.items() if name in vars(module))


def setup(app: Sphinx) -> dict[str, object]:
    """The extension."""
    _complete(redflow_sdk)
    for found in pkgutil.walk_packages(redflow_sdk.__path__, "redflow_sdk."):
        if ".proto" not in found.name:
            _complete(importlib.import_module(found.name))
    return {"parallel_read_safe": False}
