"""What is around starts, handlers and steps: context variables, headers from a start to its run, order, errors."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from redflow_sdk import (
    BlockingContext,
    CallNext,
    CanceledError,
    Client,
    Context,
    FailureContext,
    InvalidInputError,
    Middleware,
    RunFailedError,
    RunInfo,
    StartInfo,
    StepInfo,
    Worker,
    workflow,
)
from redflow_sdk.testing import run_inline
from tests.conftest import StartWorker
from tests.eventually import eventually

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
within: ContextVar[str] = ContextVar("within", default="no step")


class Tenants(Middleware):
    """Carries the tenant from who starts a run to its handler, and says within which step something is."""

    def start(self, start: StartInfo) -> None:
        start.headers["tenant"] = tenant.get()

    async def run(self, run: RunInfo, call_next: CallNext) -> object:
        assert tenant.get() in ("nobody", run.headers["tenant"]), "left by another run"
        tenant.set(run.headers["tenant"])
        return await call_next()

    async def step(self, step: StepInfo, call_next: CallNext) -> object:
        token = within.set(step.name)
        try:
            return await call_next()
        finally:
            within.reset(token)


def seen() -> list[str]:
    return [tenant.get(), within.get()]


async def seen_later() -> list[str]:
    await asyncio.sleep(0)
    return seen()


@workflow(name="child")
def child(ctx: BlockingContext) -> list[list[str]]:
    return [seen(), ctx.step.run("of child", seen)]


@workflow(name="on-loop")
async def on_loop(ctx: Context) -> list[list[str]]:
    own = [seen(), await ctx.step.run("plain", seen), await ctx.step.run("async", seen_later), seen()]
    own += await asyncio.gather(ctx.step.run("beside", seen), ctx.step.run("another", seen_later))
    await ctx.step.sleep("a moment", 0.01)
    own.append(seen())
    tenant.set(f"{tenant.get()}'s child")
    return own + await ctx.step.run_workflow("child", child)


@workflow(name="in-thread")
def in_thread(ctx: BlockingContext) -> list[list[str]]:
    own = [seen(), ctx.step.run("plain", seen), ctx.step.run("async", seen_later), seen()]
    own += [ctx.step.run("beside", seen), ctx.step.run("another", seen_later)]
    ctx.step.sleep("a moment", 0.01)
    own.append(seen())
    tenant.set(f"{tenant.get()}'s child")
    return own + ctx.step.run_workflow("child", child)


@pytest.mark.parametrize("park_window", [0, 60], ids=["replayed", "parked"])
async def test_each_of_many_runs_sees_the_context_variables_of_its_own_start_and_leaves_none(
    park_window: float, target: str, start_worker: StartWorker
) -> None:
    await start_worker(on_loop, in_thread, child, middleware=[Tenants()], concurrency=100, park_window=park_window)

    async def execute(client: Client, handler: Any, name: str) -> None:
        tenant.set(name)
        steps = ("no step", "plain", "async", "no step", "beside", "another", "no step")
        expected = [[name, step] for step in steps]
        of_child = [[f"{name}'s child", "no step"], [f"{name}'s child", "of child"]]
        assert await client.execute(handler, timeout=30) == expected + of_child

    async with Client(target, middleware=[Tenants()]) as client:
        works = [execute(client, handler, f"{handler.name} {n}") for n in range(50) for handler in (on_loop, in_thread)]
        await asyncio.gather(*works)
    assert seen() == ["nobody", "no step"]


@workflow(name="subscriber", events=["moved"])
async def subscriber(ctx: Context, event: dict[str, str]) -> str:
    return tenant.get()


@workflow(name="starter")
async def starter(ctx: Context) -> list[str]:
    [by_event] = await ctx.step.emit_event("emit", "moved", {})
    return [by_event, await ctx.step.start_workflow("start", child)]


async def test_events_and_started_runs_take_headers_along_too(target: str, start_worker: StartWorker) -> None:
    await start_worker(subscriber, starter, child, middleware=[Tenants()])
    async with Client(target, middleware=[Tenants()]) as client:
        tenant.set("Ada")
        [by_client] = await client.emit_event("moved", {})
        by_event, by_start = await client.execute(starter, timeout=10)
        assert await client.handle(by_client).result(timeout=10) == "Ada"
        assert await client.handle(by_event).result(timeout=10) == "Ada"
        assert await client.handle(by_start).result(timeout=10) == [["Ada", "no step"], ["Ada", "of child"]]


class Recorder(Middleware):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def start(self, start: StartInfo) -> None:
        self.log.append(f"{self.name} starts {start.kind} {start.name}")

    async def run(self, run: RunInfo, call_next: CallNext) -> object:
        self.log.append(f"{self.name} before {run.workflow} {run.attempt}.{run.delivery}")
        try:
            return await call_next()
        finally:
            self.log.append(f"{self.name} after {run.workflow}")

    async def step(self, step: StepInfo, call_next: CallNext) -> object:
        self.log.append(f"{self.name} before {step.name} {step.tries}")
        value = await call_next()
        assert isinstance(value, list)
        return [*value, self.name]


@workflow(name="waits")
async def waits(ctx: Context) -> list[str]:
    value: list[str] = await ctx.step.run("step", list)
    await ctx.step.sleep("a moment", 0.01)
    return value


async def test_the_first_one_is_the_outermost_and_what_is_on_record_is_not_surrounded_again(
    client: Client, start_worker: StartWorker
) -> None:
    log: list[str] = []
    await start_worker(waits, middleware=[Recorder("outer", log), Recorder("inner", log)], park_window=0)
    assert await client.execute(waits, timeout=10) == ["inner", "outer"]
    before, after = ["outer before waits 1.{}", "inner before waits 1.{}"], ["inner after waits", "outer after waits"]
    steps = ["outer before step 1", "inner before step 1"]
    assert log == [*(one.format(1) for one in before), *steps, *after, *(one.format(2) for one in before), *after]


async def test_a_child_is_started_once_whatever_the_replays(client: Client, start_worker: StartWorker) -> None:
    log: list[str] = []

    @workflow(name="parent")
    async def parent(ctx: Context) -> list[str]:
        await ctx.step.sleep("before", 0.01)
        value = await ctx.step.run_workflow("child", waits)
        await ctx.step.sleep("after", 0.01)
        return value

    await start_worker(parent, waits, middleware=[Recorder("one", log)], park_window=0)
    assert await client.execute(parent, timeout=10) == ["one"]
    assert [line for line in log if " starts " in line] == ["one starts run waits"]


class Refuses(Middleware):
    async def run(self, run: RunInfo, call_next: CallNext) -> object:
        raise PermissionError("not on Sundays")


async def test_what_middleware_raises_fails_the_attempt(client: Client, start_worker: StartWorker) -> None:
    await start_worker(waits, middleware=[Refuses()])
    with pytest.raises(RunFailedError, match="PermissionError: not on Sundays"):
        await client.execute(waits, timeout=10)


async def test_a_step_in_a_thread_stays_in_the_thread_of_its_handler_and_its_error_passes_the_middleware(
    client: Client, start_worker: StartWorker
) -> None:
    seen_errors: list[str] = []

    class Watches(Middleware):
        async def step(self, step: StepInfo, call_next: CallNext) -> object:
            try:
                return await call_next()
            except LookupError as error:
                seen_errors.append(repr(error))
                raise

    def fails() -> None:
        raise LookupError(threading.get_ident())

    @workflow(name="threads")
    def threads(ctx: BlockingContext) -> bool:
        try:
            ctx.step.run("fails", fails)
        except LookupError as error:
            return error.args == (threading.get_ident(),)
        return False

    await start_worker(threads, middleware=[Watches()])
    assert await client.execute(threads, timeout=10) is True
    assert len(seen_errors) == 1


async def test_a_cancel_reaches_the_middleware_of_a_step_in_a_thread_and_the_thread_is_free_when_its_function_ends(
    client: Client, start_worker: StartWorker
) -> None:
    begun, may_end, seen_cancels = threading.Event(), threading.Event(), list[str]()

    class Watches(Middleware):
        async def step(self, step: StepInfo, call_next: CallNext) -> object:
            try:
                return await call_next()
            except asyncio.CancelledError:
                seen_cancels.append(step.name)
                raise

    def blocks() -> bool:
        begun.set()
        return may_end.wait(10)

    @workflow(name="blocks")
    def blocks_in_step(ctx: BlockingContext) -> None:
        ctx.step.run("blocks", blocks)

    await start_worker(blocks_in_step, waits, middleware=[Watches()], concurrency=1)
    handle = await client.start(blocks_in_step)
    assert await asyncio.to_thread(begun.wait, 10)
    assert await handle.cancel()
    await eventually(lambda: seen_cancels == ["blocks"], within=10)
    may_end.set()
    with pytest.raises(CanceledError):
        await handle.result(timeout=10)
    assert await client.execute(waits, timeout=10) == []


async def test_a_failure_handler_is_surrounded_as_handlers_are_on_the_loop_and_in_a_thread(
    target: str, start_worker: StartWorker
) -> None:
    handled: list[tuple[str, str, bool]] = []
    loop_thread = threading.get_ident()

    def note(failed: FailureContext) -> None:
        handled.append((failed.run.headers["tenant"], tenant.get(), threading.get_ident() == loop_thread))

    async def note_later(failed: FailureContext) -> None:
        await asyncio.sleep(0)
        note(failed)

    @workflow(name="fails", on_failure=note_later)
    async def fails(ctx: Context) -> None:
        raise LookupError("no")

    @workflow(name="fails-in-thread", on_failure=note)
    def fails_in_thread(ctx: BlockingContext) -> None:
        raise LookupError("no")

    await start_worker(fails, fails_in_thread, middleware=[Tenants()])
    async with Client(target, middleware=[Tenants()]) as client:
        for name, handler in (("Ada", fails), ("Bo", fails_in_thread)):
            tenant.set(name)
            with pytest.raises(RunFailedError, match="LookupError"):
                await client.execute(handler, timeout=10)
    assert handled == [("Ada", "Ada", True), ("Bo", "Bo", False)]


async def fails(ctx: Context) -> None:
    raise LookupError("no")


class OfFailures(Recorder):
    async def failure_handler(self, failure: FailureContext, call_next: CallNext) -> object:
        self.log.append(f"{self.name} before {failure.error!r}")
        return await call_next()


async def test_what_is_around_failure_handlers_only_is_called_there_and_the_rest_goes_on_as_around_handlers() -> None:
    log: list[str] = []
    handled = workflow(name="fails", on_failure=lambda failed: log.append("handled"))(fails)
    result = await run_inline(handled, middleware=[Recorder("outer", log), OfFailures("inner", log)])
    assert (result.status, result.run.failure_handler) == ("failed", "done")
    assert log == [
        *("outer starts run fails", "inner starts run fails", "outer before fails 1.1", "inner before fails 1.1"),
        *("inner after fails", "outer after fails"),
        *("outer before fails 1.1", "inner before LookupError('no')", "handled", "outer after fails"),
    ]


async def test_what_middleware_raises_around_a_failure_handler_fails_that_and_changes_nothing_of_the_run() -> None:
    class NotNow(Middleware):
        async def failure_handler(self, failure: FailureContext, call_next: CallNext) -> object:
            raise PermissionError("not on Sundays")

    result = await run_inline(workflow(name="fails", on_failure=print)(fails), middleware=[NotNow()])
    assert (result.failure and result.failure.type, result.run.failure_handler) == ("LookupError", "failed")
    assert result.run.failure_handler_failure
    assert result.run.failure_handler_failure.message == "not on Sundays"


class Sends(Middleware):
    def __init__(self, headers: Any) -> None:
        self.headers = headers

    def start(self, start: StartInfo) -> None:
        start.headers.update(self.headers)


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"a": 1}, "text by text"),
        ({"a": "x" * 5000}, "at most 4096 bytes"),
        ({f"n{n}": "" for n in range(500)}, "at most 4096 bytes"),
        ({"a": "\ud800"}, "lone surrogates"),
    ],
    ids=["no text", "too large", "too many", "surrogate"],
)
async def test_headers_that_cannot_be_sent_are_refused_to_who_starts(headers: Any, problem: str, target: str) -> None:
    async with Client(target, middleware=[Sends(headers)]) as client:
        with pytest.raises(InvalidInputError, match=problem):
            await client.start(waits)


async def test_starts_with_one_key_are_one_whatever_their_headers(target: str) -> None:
    async with Client(target, middleware=[Sends({"n": "1"})]) as one, Client(target) as other:
        first = await one.start(waits, idempotency_key="k")
        second = await other.start(waits, idempotency_key="k", on_input_mismatch="reject")
    assert (second.id, second.created, second.input_differs) == (first.id, False, False)


class IsNotAwaited(Middleware):
    async def start(self, start: StartInfo) -> None:  # type: ignore[override]  # that is the case
        start.headers["lost"] = "without a sign"


NO_MIDDLEWARE: Any = ["text", [print], Middleware(), [IsNotAwaited()]]  # Any: what is wrong with it


@pytest.mark.parametrize("given", NO_MIDDLEWARE, ids=["text", "function", "not in a list", "start is async"])
def test_what_is_no_middleware_is_refused_when_it_is_given(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="middleware"):
        Client(middleware=given)
    with pytest.raises(InvalidInputError, match="middleware"):
        Worker(workflows=[waits], middleware=given)
