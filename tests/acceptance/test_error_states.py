"""Whatever is raised, the run ends as the guide says, within seconds, and its worker takes the next one."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from redflow_sdk import (
    BlockingContext,
    CanceledError,
    Client,
    Context,
    NonRetriableError,
    RetryPolicy,
    Run,
    RunCanceledError,
    RunFailedError,
    RunHandle,
    workflow,
)
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.tidy.test_docs import DOCS, rows, section, ticked

ENDS_WITHIN_S = 20.0

TWICE = RetryPolicy(max_attempts=2, initial=0.01, maximum=0.01, jitter=0.0)


@dataclass(frozen=True)
class Case:
    """Something to raise, and the row of the guide that tells of it, by how that begins."""

    row: str
    make: Callable[[], BaseException]
    attempts: int = 2
    kind: str = "error"


class BrokenStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class BrokenRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class SpoiltText(str):
    def __len__(self) -> int:
        raise RuntimeError("no length")


class GivesSpoiltText(Exception):
    def __str__(self) -> str:
        return SpoiltText("text")


class NoItems(NonRetriableError):
    """An exception that is false."""

    def __len__(self) -> int:
        return 0


class NeedsArguments(Exception):
    def __init__(self, code: int, *, lock: object) -> None:
        super().__init__(f"code {code}")
        self.code, self.lock = code, lock


def too_deep() -> BaseException:
    return too_deep()


def groups_in_groups(depth: int, member: Exception, times: int = 1) -> BaseException:
    group = ExceptionGroup("innermost", [member])
    for _ in range(depth):
        group = ExceptionGroup("around", [group] * times)
    return group


def in_a_circle() -> BaseException:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def both() -> BaseException:
    return ExceptionGroup("several", [ValueError("a"), NonRetriableError("b")])


PROGRAM_ENDS = "`SystemExit`"
CASES = {
    "exception": Case("any", lambda: ValueError("no")),
    "arguments": Case("any", lambda: NeedsArguments(7, lock=threading.Lock())),
    "bytes": Case("any", lambda: ValueError(b"\xff\xfe\0")),
    "too deep": Case("any", too_deep),
    "time-out": Case("`TimeoutError`", TimeoutError, kind="timeout"),
    "exit": Case(PROGRAM_ENDS, lambda: SystemExit(3)),
    "interrupt": Case(PROGRAM_ENDS, KeyboardInterrupt),
    "generator exit": Case(PROGRAM_ENDS, GeneratorExit),
    "bare": Case(PROGRAM_ENDS, lambda: BaseException("bare")),
    "no retry": Case("`NonRetriableError`", lambda: NonRetriableError("no"), 1, "non_retriable"),
    "from no retry": Case("`raise", lambda: caused(LookupError("outer"), NonRetriableError("no")), 1),
    "from a false one": Case("`raise", lambda: caused(LookupError("outer"), NoItems("no")), 1),
    "from a group": Case("`raise", lambda: caused(LookupError("outer"), both()), 1),
    "group": Case("`ExceptionGroup`", lambda: ExceptionGroup("several", [ValueError("a"), KeyError("b")])),
    "group with no retry": Case("`ExceptionGroup`", both, 1),
    "groups in groups": Case("`ExceptionGroup`", lambda: groups_in_groups(500, NonRetriableError("no")), 1),
    "groups without end": Case("`ExceptionGroup`", lambda: groups_in_groups(50, ValueError("a"), times=5)),
    "cancel": Case("`CancelledError`", asyncio.CancelledError, 1, "canceled"),
    "cancel of a thread": Case("`CancelledError`", lambda: RunCanceledError("no"), 1, "canceled"),
    "broken str": Case("an exception whose", BrokenStr),
    "broken repr": Case("an exception whose", lambda: KeyError(BrokenRepr())),
    "spoilt text": Case("an exception whose", GivesSpoiltText),
    "surrogate": Case("text with", lambda: ValueError("cut \ud800 off")),
    "circle": Case("causes", in_a_circle),
    "5 MB": Case("a message", lambda: ValueError("x" * 5_000_000)),
}


@workflow(name="raises", retry=TWICE)
async def raises(ctx: Context, case: str) -> None:
    raise CASES[case].make()


@workflow(name="raises-in-thread", retry=TWICE)
def raises_in_thread(ctx: BlockingContext, case: str) -> None:
    raise CASES[case].make()


@workflow(name="raises-in-step", retry=TWICE)
async def raises_in_step(ctx: Context, case: str) -> None:
    async def step() -> None:
        raise CASES[case].make()

    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.step.run("raises", step))


@workflow(name="raises-in-task", retry=TWICE)
async def raises_in_task(ctx: Context, case: str) -> None:
    async def task() -> None:
        raise CASES[case].make()

    async with asyncio.TaskGroup() as group:
        group.create_task(task())


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


async def ended(client: Client, handler: object, case: str) -> Run:
    handle = await client.start(handler.name, case)  # type: ignore[attr-defined]  # a workflow
    with pytest.raises(RunFailedError):
        await handle.result(timeout=ENDS_WITHIN_S)
    return await handle.get()


@pytest.mark.parametrize("handler", [raises, raises_in_thread], ids=lambda it: it.name)
async def test_each_ends_its_run_as_the_guide_says_and_the_worker_takes_the_next(
    handler: object, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(handler, quick, concurrency=1)
    for name, case in CASES.items():
        run = await ended(client, handler, name)
        assert run.failure is not None
        assert (run.status, run.failure.kind, run.attempt) == ("failed", case.kind, case.attempts), name
        assert await client.execute(quick, timeout=ENDS_WITHIN_S) == "quick", name


@pytest.mark.parametrize("handler", [raises_in_step, raises_in_task], ids=lambda it: it.name)
async def test_one_in_a_task_of_a_group_ends_its_run_too(
    handler: object, client: Client, start_worker: StartWorker
) -> None:
    """As a member of the group that the TaskGroup raises; a cancel of its own task only ends that."""
    await start_worker(handler, quick, concurrency=1)
    for name, case in CASES.items():
        if case.kind == "canceled":
            continue
        run = await ended(client, handler, name)
        assert (run.status, run.attempt) == ("failed", case.attempts), name
        assert await client.execute(quick, timeout=ENDS_WITHIN_S) == "quick", name


# ---- while it is canceled ----


@workflow(name="cleans-up", retry=TWICE)
async def cleans_up(ctx: Context, case: str) -> None:
    try:
        await asyncio.sleep(30)
    finally:
        raise CASES[case].make()


@workflow(name="cleans-up-in-thread", retry=TWICE)
def cleans_up_in_thread(ctx: BlockingContext, case: str) -> None:
    try:
        while True:
            ctx.raise_if_canceled()
            time.sleep(0.01)
    finally:
        raise CASES[case].make()


@workflow(name="cleans-up-in-step", retry=TWICE)
async def cleans_up_in_step(ctx: Context, case: str) -> None:
    async def step() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            raise CASES[case].make()

    await ctx.step.run("cleans up", step)


async def canceled_at_work(client: Client, name: str, case: str) -> Run:
    handle: RunHandle[object] = await client.start(name, case)

    async def is_running() -> bool:
        return (await handle.get()).status == "running"

    await eventually(is_running)
    await handle.cancel()
    with pytest.raises(CanceledError):
        await handle.result(timeout=ENDS_WITHIN_S)
    return await handle.get()


@pytest.mark.parametrize("handler", [cleans_up, cleans_up_in_thread, cleans_up_in_step], ids=lambda it: it.name)
async def test_a_canceled_run_ends_as_canceled_whatever_its_clean_up_raises(
    handler: object, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(handler, quick, concurrency=1)
    for case in ("exception", "no retry", "exit", "group", "5 MB"):
        run = await canceled_at_work(client, handler.name, case)  # type: ignore[attr-defined]  # a workflow
        assert (run.status, run.attempt) == ("canceled", 1), case
        assert await client.execute(quick, timeout=ENDS_WITHIN_S) == "quick", case


def test_the_guide_has_a_row_for_each_and_no_other() -> None:
    table = rows(section(DOCS / "how-to" / "retries.md", "## What may be raised"))
    for row in table:
        told = [case for case in CASES.values() if row[0].startswith(case.row)]
        assert told, row
        kinds = {case.kind for case in told}
        assert set(ticked(row[1])) in (kinds, set()), row
        attempts = {"all": 2, "one": 1}
        words = [attempts[word] for word in re.findall(r"\b(all|one)\b", row[2])]
        assert {case.attempts for case in told} == set(words), row
