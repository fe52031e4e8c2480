"""The new sides of the migration pages do what stands beside them; the old sides are Python at least."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from redflow_sdk import Client
from tests.conftest import StartWorker
from tests.tidy.how_to import CLAIM, module_of, workflows_of
from tests.tidy.test_docs import DOCS, blocks, section

PAGES = sorted((DOCS / "migrating").glob("*.md"))
SECTIONS = (
    "## In one table",
    "## Before and after",
    "## What you gain",
    "## What is not there, and what to do",
    "## How to switch over without losing work",
)
OLD_SIDE = re.compile(r"^(?:from|import) (?:celery|tasks)\b", re.M)
PRINTS = re.compile(r"^```python\n((?:(?!^```).)*?)^```\n\nIt prints:\n\n```\n(.*?)^```", re.M | re.S)


def new_side(page: Path) -> list[str]:
    return [block for block in blocks(page, "python") if not OLD_SIDE.search(block)]


def module_named(name: str, page: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's definitions as one module, which its other blocks can import by that name."""
    module = module_of("\n\n".join(block for block in new_side(page) if "@workflow" in block))
    monkeypatch.setitem(sys.modules, name, module)
    return module


def stand_in_for_django(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Just enough of Django for a view; what it has put off until the commit."""
    at_commit: list[Callable[[], object]] = []

    class Transaction:
        on_commit = staticmethod(at_commit.append)

        @staticmethod
        @contextlib.contextmanager
        def atomic() -> Iterator[None]:
            yield

    stand_ins: dict[str, dict[str, object]] = {
        "django": {},
        "django.db": {"transaction": Transaction},
        "django.http": {"JsonResponse": lambda data, status: (status, data)},
    }
    for name, attributes in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    return at_commit


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_answers_the_same_questions_in_the_same_order(page: Path) -> None:
    assert tuple(re.findall(r"^## .*$", page.read_text(), re.M)) == SECTIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_the_new_side_of_a_page_does_what_it_says(
    page: Path,
    client: Client,
    target: str,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REDFLOW_TARGET", target)
    shop = module_named("shop", page, monkeypatch)
    await start_worker(*workflows_of(shop))

    compared = section(page, "## Before and after")
    claims = CLAIM.findall(compared)
    assert claims
    for name, given, expected in claims:
        output = await client.execute(getattr(shop, name), ast.literal_eval(given), timeout=20)
        assert output == ast.literal_eval(expected), name

    programs = PRINTS.findall(compared)
    assert programs
    for program, printed in programs:
        capsys.readouterr()
        await asyncio.to_thread(module_of, program)
        assert capsys.readouterr().out == printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_the_tests_on_a_page_pass(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module_named("shop", page, monkeypatch)
    tests = [
        test
        for block in new_side(page)
        if "def test_" in block
        for name, test in vars(module_of(block)).items()
        if name.startswith("test_")
    ]
    assert tests
    for test in tests:
        await test()


async def test_the_view_on_the_page_for_celery_starts_its_run_at_the_commit(
    client: Client, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDFLOW_TARGET", target)
    at_commit = stand_in_for_django(monkeypatch)
    page = DOCS / "migrating" / "celery.md"
    shop = module_named("shop", page, monkeypatch)
    (view,) = (module_of(block) for block in new_side(page) if "from django" in block)

    assert view.checkout(None, "A-20") == (202, {"order": "A-20"})
    assert await client.list_runs(workflow="charge").page() == []
    (starting,) = at_commit
    await asyncio.to_thread(starting)
    (run,) = await client.list_runs(workflow="charge").page()
    again = await client.start(shop.charge, shop.Order("A-20", 990), idempotency_key="charge A-20")
    assert (again.id, again.created, again.input_differs) == (run.id, False, False)
    await asyncio.to_thread(view.redflow.close)


def test_every_python_block_is_of_a_known_kind() -> None:
    """None escapes the tests above."""
    for page in PAGES:
        printing = {program for program, _ in PRINTS.findall(page.read_text())}
        for block in new_side(page):
            kinds = ["@workflow" in block, "def test_" in block, "from django" in block, block in printing]
            assert kinds.count(True) == 1, f"{page.name}: {block}"
