"""Gives the modules of the SDK the names that they import for type checkers alone: signatures are made of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil

from sphinx.application import Sphinx

import redflow_sdk


def setup(app: Sphinx) -> dict[str, object]:
    """The extension."""
    for found in pkgutil.walk_packages(redflow_sdk.__path__, "redflow_sdk."):
        if ".proto" not in found.name:
            module = importlib.import_module(found.name)
            for node in ast.parse(inspect.getsource(module)).body:
                if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                    exec("\n".join(map(ast.unparse, node.body)), vars(module))  # noqa: S102  # imports of our own code
    return {"parallel_read_safe": False}
