"""The reference lists every public name once, and the site shows docstrings as they are meant and finds dead links."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

import redflow_sdk
import redflow_sdk.testing
from redflow_server.testing import gateways, plugin
from tests.tidy.source_files import ROOT

SITE = ROOT / "docs" / "site"
FOR_THE_SDK_ITSELF = {
    *("redflow_sdk.converter.encode", "redflow_sdk.converter.decode", "redflow_sdk.converter.structure"),
    *("redflow_sdk.converter.get_to_know", "redflow_sdk.converter.result_type", "redflow_sdk.handle.output_of"),
    "redflow_sdk.converter.comes_back_the_same",
    *("redflow_sdk.worker.Running", "redflow_sdk.workflow.is_async"),
}
"""Functions and classes of public modules that nobody is told of."""


def of_the_site(name: str) -> Any:  # Any: a module, which the site imports by its path
    sys.path.insert(0, str(SITE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SITE))


public_names, docstrings, check_links = map(of_the_site, ("public_names", "docstrings", "check_links"))


def public_modules() -> Iterator[ModuleType]:
    """The modules of the SDK that users may import."""
    for found in pkgutil.walk_packages(redflow_sdk.__path__, "redflow_sdk."):
        parts = found.name.split(".")[1:]
        if not any(part.startswith("_") for part in parts) and parts[0] != "proto":
            yield importlib.import_module(found.name)


def test_every_export_is_in_the_reference_once() -> None:
    exports = {f"{module.__name__}.{name}" for module in (redflow_sdk, redflow_sdk.testing) for name in module.__all__}
    listed = Counter(public_names.listed())
    assert exports - listed.keys() == set()
    assert [name for name, times in listed.items() if times > 1] == []
    objects = Counter(id(public_names.found(name)) for name in listed)
    assert max(objects.values()) == 1, "no name is listed once more by another module"


def test_every_class_and_function_of_a_public_module_is_in_the_reference() -> None:
    """Also those that are no exports, such as what `ctx.step` is."""
    listed = {id(public_names.found(name)) for name in public_names.listed()}
    missing = {
        f"{module.__name__}.{name}"
        for module in public_modules()
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
        and not isinstance(value, TypeVar)
        and id(value) not in listed
    }
    assert missing == FOR_THE_SDK_ITSELF


def test_the_fixtures_of_the_pytest_plugin_are_in_the_reference_and_so_is_what_they_give() -> None:
    fixtures = {name for name, value in vars(plugin).items() if type(value).__name__ == "FixtureFunctionDefinition"}
    public = {f"{plugin.__name__}.{name}" for name in fixtures if not name.startswith("_")}
    assert len(public) == 2
    assert {*public, f"{gateways.__name__}.RunningGateway"} <= {*public_names.listed()}


@pytest.mark.parametrize("name", public_names.listed())
def test_what_is_in_the_reference_says_what_it_is(name: str) -> None:
    thing = public_names.found(name)
    silent = [
        member
        for member, value in (vars(thing).items() if inspect.isclass(thing) else ())
        if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
        if not inspect.getdoc(value)
    ]
    assert silent == []
    assert inspect.getdoc(thing) or not inspect.isclass(thing)


def rst(docstring: str, owner: str = "Client") -> str:
    return "\n".join(docstrings.as_rst(inspect.cleandoc(docstring), owner)).rstrip("\n")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Takes `timeout`.", "Takes ``timeout``."),
        ("As in `Client.start`.", "As in :py:obj:`Client.start <redflow_sdk.Client.start>`."),
        ("As in `start`.", "As in :py:obj:`start <redflow_sdk.Client.start>`."),
        ("Some `Run`s.", r"Some :py:obj:`Run <redflow_sdk.Run>`\ s."),
        ("Raises RunNotFoundError.", "Raises :py:obj:`RunNotFoundError <redflow_sdk.RunNotFoundError>`."),
        ("Raises LookupError, *args, a_", r"Raises LookupError, \*args, a\_"),
    ],
)
def test_prose_of_docstrings_has_code_and_links(written: str, shown: str) -> None:
    assert rst(written) == shown


@pytest.mark.parametrize("prose", ["Greets.", "Greets.\n    Loudly."])
def test_an_example_of_a_docstring_is_code_whatever_stands_before_it(prose: str) -> None:
    example = "def greet():\n    pass\n\n    # as quietly"
    shown = rst(f"{prose}\n\n{textwrap.indent(example, ' ' * 8)}\n    ")
    assert shown.endswith(".. code-block:: python\n\n" + textwrap.indent(example, "   "))


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">x</a><a href="#here">x</a><a href="c.html">')
    (tmp_path / "b.html").write_text('<a name="there"></a><a href="a.html#gone">x</a><a href="https://example.com">x')
    assert check_links.dead_links(tmp_path) == ["a.html: c.html", "b.html: a.html#gone"]
