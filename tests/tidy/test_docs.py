"""The documents say what the code says: tables of flags, keys, scripts, states, calls, refusals; and the quickstart."""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

import redflow_sdk
from redflow_sdk._transport.channel import DEFAULT_TARGET, ERRORS
from redflow_sdk.errors import RefusedError
from redflow_sdk.proto.api.v1 import event_service_pb2, run_service_pb2, system_service_pb2, workflow_service_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.cli import dev, server, worker
from redflow_server.cli.arguments import Parser
from redflow_server.domain.states import ALLOWED, TERMINAL
from redflow_server.gateway import Gateway
from redflow_server.rpc.errors import CODES
from redflow_server.rpc.event_service import EventService
from redflow_server.rpc.run_service import RunService
from redflow_server.rpc.system_service import SystemService
from redflow_server.rpc.worker_service import WorkerService
from redflow_server.rpc.workflow_service import WorkflowService
from redflow_server.store.invariants import RULES
from redflow_server.store.keys import Keys
from redflow_server.store.scripts import FOLDER, load_scripts
from tests.cli.command import environment
from tests.conftest import StartWorker
from tests.tidy.source_files import ROOT, shown, syntax, tracked_files

DOCS = ROOT / "docs"
STORE = ROOT / "redflow_server" / "store" / "README.md"
DOMAIN = ROOT / "redflow_server" / "domain" / "README.md"
DOCUMENTS = [path for path in tracked_files() if path.suffix == ".md"]


def section(path: Path, heading: str) -> str:
    """What stands under a heading, up to the next one of its level or above."""
    level, _, _ = heading.partition(" ")
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", path.read_text(), re.M | re.S)
    assert found, f"{shown(path)} has no {heading}"
    return found[1]


def rows(text: str) -> list[tuple[str, ...]]:
    """The rows of the tables in a text, without their heads."""
    found: list[tuple[str, ...]] = []
    lines = text.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|") and not line.startswith("|--"):
            found.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
        elif line.startswith("|--") and before.startswith("|"):
            found.pop()
    return found


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.M | re.S)


# ---- for users ----


def test_every_refusal_is_in_the_table_of_reasons_with_its_code_and_exception() -> None:
    table = {
        ticked(row[0])[0]: (ticked(row[1])[0], ticked(row[2])) for row in rows(section(DOCS / "grpc.md", "## Reasons"))
    }
    assert {reason: code for reason, (code, _) in table.items()} == {
        kind.reason: code.name for kind, code in CODES.items()
    }
    for reason, (_, exception) in table.items():
        expected = ERRORS.get(reason, RefusedError).__name__
        assert exception == [expected] or (exception == [] and reason not in ERRORS), reason


def test_every_call_is_in_the_table_of_calls_and_is_served_as_it_says() -> None:
    modules = (run_service_pb2, workflow_service_pb2, event_service_pb2, system_service_pb2, worker_pb2)
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    served_by: Mapping[str, type] = {
        "RunService": RunService,
        "WorkflowService": WorkflowService,
        "EventService": EventService,
        "SystemService": SystemService,
        "WorkerService": WorkerService,
    }
    calls = {
        f"{service.name}.{method.name}": method.name in vars(served_by.get(service.name, object))
        for service in services
        for method in service.methods
    }
    table = {ticked(row[0])[0]: row[1] != "not yet" for row in rows(section(DOCS / "grpc.md", "## Calls"))}
    assert table == calls


def _parser_of(command: str) -> argparse.ArgumentParser:
    parser = Parser(prog=command)
    {"server": server, "dev": dev, "worker run": worker}[command].add_arguments(parser)
    if command == "worker run":
        (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        return verbs.choices["run"]  # type: ignore[no-any-return]  # argparse says Any
    return parser


@pytest.mark.parametrize("command", ["server", "dev", "worker run"])
def test_every_flag_is_described_with_its_default(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("REDFLOW_")]:
        monkeypatch.delenv(name)
    table = {ticked(row[0])[0]: row[1] for row in rows(section(DOCS / "configuration.md", f"## redflow {command}"))}
    flags = {
        max(action.option_strings, key=len): action
        for action in _parser_of(command)._actions
        if action.option_strings and action.dest != "help"
    }
    assert table.keys() == flags.keys()
    for flag, action in flags.items():
        if action.default is False:
            assert table[flag] == "off", flag
        elif action.default is not None:
            default = f"{action.default:.12g}" if isinstance(action.default, float) else str(action.default)
            assert table[flag] == f"`{default}`", flag


def test_every_environment_variable_is_described() -> None:
    sources = [path for folder in ("redflow_server", "redflow_sdk") for path in (ROOT / folder).rglob("*.py")]
    read = {name for path in sources for name in re.findall(r"environ\S*\(\"(REDFLOW_\w+)\"", path.read_text())}
    assert {ticked(row[0])[0] for row in rows(section(DOCS / "configuration.md", "## Environment"))} == read


def test_every_guarantee_says_what_holds_what_does_not_how_and_where_it_is_shown() -> None:
    text = (DOCS / "guarantees.md").read_text()
    guarantees = re.findall(r"^### (\S+)\n(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert len({name for name, _ in guarantees}) == len(guarantees) >= 10
    parts = ("**Holds:**", "**Does not:**", "**Kept by:**", "**Shown by:**")
    assert [(name, part) for name, body in guarantees for part in parts if part not in body] == []
    assert [name for name, body in guarantees if "::test_" not in body] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_every_test_that_is_named_exists(document: Path) -> None:
    missing = []
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text()):
        file = ROOT / path
        if not file.is_file() or name not in {getattr(node, "name", "") for node in ast.walk(syntax(file))}:
            missing.append(f"{path}::{name}")
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_python_in_documents_is_python_and_imports_what_there_is(document: Path) -> None:
    for block in blocks(document, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "redflow_sdk":
                assert {name.name for name in node.names} <= set(redflow_sdk.__all__)


def test_every_exception_is_described() -> None:
    exceptions = {
        name
        for name, value in vars(redflow_sdk).items()
        if isinstance(value, type) and issubclass(value, redflow_sdk.RedflowError)
    }
    described = {
        name
        for page in [DOCS / "grpc.md", *(DOCS / "how-to").glob("*.md")]
        for name in re.findall(r"`(?:raise )?(\w+)[`(]", page.read_text())
    }
    assert exceptions - described == {"RedflowError"}


async def _run(folder: Path, target: str, *command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        cwd=folder,
        env={**environment(), "REDFLOW_TARGET": target, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def test_the_quickstart_does_what_it_says(gateway: Gateway, target: str, tmp_path: Path) -> None:
    workflow, client = blocks(ROOT / "README.md", "python")
    (tmp_path / "shop.py").write_text(workflow)
    (tmp_path / "buy.py").write_text(client)
    work = await _run(tmp_path, target, "-m", "redflow_server.cli", "worker", "run", "shop")
    try:
        buy = await _run(tmp_path, target, "buy.py")
        printed, _ = await asyncio.wait_for(buy.communicate(), 30)
        assert work.stdout is not None
        connected = await asyncio.wait_for(work.stdout.readline(), 10)
        mailed = await asyncio.wait_for(work.stdout.readline(), 10)
    finally:
        work.terminate()
        await asyncio.wait_for(work.wait(), 10)
    assert buy.returncode == 0, printed.decode()
    readme = (ROOT / "README.md").read_text()
    assert f"$ python buy.py\n{printed.decode()}" in readme
    connected = connected.replace(target.encode(), DEFAULT_TARGET.encode())
    said = re.escape(connected.partition(b"INFO")[2].decode() + mailed.decode())
    assert re.search(rf"\$ redflow worker run shop\n.*INFO{said}", readme)


STUBS_PYTHON = ROOT / ".venv-stubs" / "bin" / "python"


@pytest.mark.skipif(not STUBS_PYTHON.exists(), reason="needs grpc_tools: make .venv-stubs/ready")
async def test_the_client_with_plain_stubs_does_what_it_says(
    target: str, start_worker: StartWorker, tmp_path: Path
) -> None:
    @redflow_sdk.workflow(name="order", queue="shop")
    async def order(ctx: redflow_sdk.Context, order: dict[str, str]) -> str:
        return f"receipt-{order['id']}-12900"

    await start_worker(order)
    about = section(DOCS / "how-to" / "other-languages.md", "## Python")
    (commands,) = re.findall(r"^```\n(.*?)^```", about, re.M | re.S)
    [make_folder, protoc] = re.findall(r"^\$ ((?:mkdir|python -m grpc_tools).*?[^\\])\n", commands, re.M | re.S)
    (tmp_path / "checkout").mkdir()
    shutil.copytree(ROOT / "proto", tmp_path / "checkout" / "proto")
    shell = f"cd {tmp_path}/checkout && {make_folder} && {protoc.replace('python', str(STUBS_PYTHON), 1)}"
    making = await asyncio.create_subprocess_shell(shell)
    assert await asyncio.wait_for(making.wait(), 30) == 0
    assert [path.name for path in (tmp_path / "checkout").iterdir()] == ["proto"], "the checkout stays as it was"

    (snippet,) = re.findall(r"^```python\n(.*?)^```", about, re.M | re.S)
    (tmp_path / "shop" / "start.py").write_text(snippet.replace(DEFAULT_TARGET, target))
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "start.py"),
        cwd=tmp_path / "shop",
        env={**environment(), "PYTHONPATH": "stubs"},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await asyncio.wait_for(started.communicate(), 30)
    assert f"# {printed.decode()}" in snippet


# ---- for operators ----


def test_every_rule_that_doctor_checks_is_explained() -> None:
    table = section(DOCS / "operations.md", "## What doctor and the log say")
    explained = {ticked(row[0])[0]: row[1] for row in rows(table) if ticked(row[0])[:1] and ticked(row[0])[0] in RULES}
    assert explained == RULES


def test_the_user_for_gateways_may_call_every_command_of_the_scripts() -> None:
    allowed = set(re.findall(r"\+([\w|]+)", section(DOCS / "operations.md", "## Redis settings")))
    called = {
        command.lower()
        for path in FOLDER.rglob("*.lua")
        for command in re.findall(r"'([A-Z]{3,})'", path.read_text())  # some are called by a name that is handed over
    }
    assert called - allowed == {"count", "limit", "withscores", "withvalues"}, "these are arguments"


# ---- for readers ----


def test_every_page_is_in_the_index() -> None:
    linked = re.findall(r"\]\(((?:[\w-]+/)*[\w-]+\.md)\)", (DOCS / "README.md").read_text())
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path != DOCS / "README.md"]
    assert sorted(linked) == sorted(pages)


def test_every_key_is_in_the_table_of_keys_once() -> None:
    """Each method of `Keys`, with the name it makes and the type its docstring begins with."""
    methods = {name: value for name, value in vars(Keys).items() if not name.startswith("_") and name != "prefix"}
    keys = Keys("P")
    described = []
    for name, method in methods.items():
        function = method.fget if isinstance(method, property) else method
        parts = [f"<{part}>" for part in list(inspect.signature(function).parameters)[1:]]
        made = getattr(keys, name) if isinstance(method, property) else method(keys, *parts)
        kind = (function.__doc__ or "").partition(":")[0]
        shown_name = re.sub(r"[0-9]+:<(\w+)>", r"lp(\1)", made)
        described.append((f"`{name}`", f"`{shown_name}`", kind))
    assert Counter(row[:3] for row in rows(section(STORE, "## Keys")) if len(row) == 4) == Counter(described)


def test_every_field_of_a_run_is_in_the_table_of_fields() -> None:
    table = {name for row in rows(section(STORE, "### The record of a run")) for name in ticked(row[0])}
    written = {
        field for path in FOLDER.rglob("*.lua") for field in re.findall(r"\bput\(\w+, '(\w+)'", path.read_text())
    }
    assert table == written


def test_the_table_of_scripts_says_what_their_headers_say() -> None:
    table = [
        (ticked(row[0])[0], row[1].startswith("yes"), row[2] == "yes", row[3] == "last")
        for row in rows(section(STORE, "## Scripts"))
        if len(row) == 4
    ]
    assert table == [
        (script.name, script.is_repeatable, script.takes_many, script.goes_last) for script in load_scripts().values()
    ]


def test_the_diagram_of_states_shows_every_edge() -> None:
    (diagram,) = blocks(DOMAIN, "mermaid")
    edges = set(re.findall(r"(\S+) --> (\w+|\[\*\])", diagram))
    expected = {(str(status), str(following)) for status, allowed in ALLOWED.items() for following in allowed}
    expected |= {("[*]", "queued"), ("[*]", "scheduled")} | {(str(status), "[*]") for status in TERMINAL}
    assert edges == expected


def test_contributing_lists_the_targets_of_make() -> None:
    targets = re.findall(r"^(\w+):.*?## (.*)$", (ROOT / "Makefile").read_text(), re.M)
    block = section(ROOT / "CONTRIBUTING.md", "# Contributing").partition("$ make\n")[2].partition("```")[0]
    assert [tuple(line.split(maxsplit=1)) for line in block.splitlines()] == targets
