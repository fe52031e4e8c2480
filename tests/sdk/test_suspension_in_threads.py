"""Handlers in threads that wait for runs: they are ended where they wait, by what no `except Exception` catches."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from redflow_sdk import BlockingContext, ChildFailedError, RunCanceledError, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import cancellation, child_failed, child_succeeded, ok, resolved, suspended, value_of
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item


@pytest.fixture
def connect(connect_without_parking: StartWorker) -> StartWorker:
    return connect_without_parking


@workflow(name="quick")
def quick(ctx: BlockingContext) -> str:
    return "quick"


@workflow(name="parent")
def parent(ctx: BlockingContext) -> int:
    first = ctx.step.run("first", lambda: 1)
    return first + int(ctx.step.run_workflow("child", "child", 7))


def setting_aside(item: Item) -> pb.ItemResult:
    return suspended(item) if isinstance(item, pb.Suspension) else ok(item)


async def test_resolved_at_once_a_handler_goes_on_where_it_is(scripted: ScriptedGateway, connect: StartWorker) -> None:
    await connect(scripted, parent)
    scripted.script.item = lambda item: (
        resolved(item, child_succeeded("child", 41)) if isinstance(item, pb.Suspension) else ok(item)
    )
    token = scripted.assign("parent")
    assert value_of((await scripted.log.result(token)).output) == 42
    assert scripted.log.said(token) == ["StepReport", "Suspension", "RunResult"]


async def test_a_failed_child_raises_in_the_thread(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="catches")
    def catches(ctx: BlockingContext) -> str:
        try:
            ctx.step.run_workflow("child", "child")
        except ChildFailedError as error:
            return str(error.failure.cause and error.failure.cause.type)
        return "none"

    await connect(scripted, catches)
    scripted.script.item = lambda item: (
        resolved(item, child_failed("child")) if isinstance(item, pb.Suspension) else ok(item)
    )
    assert value_of((await scripted.log.result(scripted.assign("catches"))).output) == "ValueError"


async def test_set_aside_a_handler_that_catches_exceptions_ends_all_the_same_and_its_clean_up_runs(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    noted: list[str] = []

    @workflow(name="catches")
    def catches(ctx: BlockingContext) -> str:
        try:
            ctx.step.run_workflow("child", "child")
        except Exception:
            noted.append("an exception")
        finally:
            noted.append("finally")
            try:
                ctx.step.run("too-late", lambda: noted.append("executed"))
            except Exception:
                noted.append("an exception")
            except BaseException:
                noted.append("no exception")
                raise
            finally:
                noted.append("ended")
        return "went on"

    await connect(scripted, catches, quick, concurrency=1)
    scripted.script.item = setting_aside
    token = scripted.assign("catches")
    await eventually(lambda: noted[-1:] == ["ended"])
    assert noted == ["finally", "no exception", "ended"]
    assert value_of((await scripted.log.result(scripted.assign("quick"))).output) == "quick"
    assert scripted.log.said(token) == ["Suspension"]


async def test_a_handler_that_catches_everything_says_nothing_more(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    noted: list[str] = []

    @workflow(name="catches")
    def catches(ctx: BlockingContext) -> str:
        for n in range(3):
            try:
                ctx.step.run_workflow(f"child{n}", "child")
            except BaseException as error:
                noted.append(type(error).__name__)
        return "went on"

    await connect(scripted, catches, quick, concurrency=1)
    scripted.script.item = setting_aside
    token = scripted.assign("catches")
    await eventually(lambda: len(noted) == 3)
    assert noted == ["RunSuspended"] * 3
    assert value_of((await scripted.log.result(scripted.assign("quick"))).output) == "quick"
    assert scripted.log.said(token) == ["Suspension"]


async def test_a_thread_is_free_for_the_next_run_whenever_a_run_was_set_aside(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, parent, quick, concurrency=1)
    scripted.script.item = setting_aside
    for _ in range(20):
        await scripted.log.suspension(scripted.assign("parent"))
        await scripted.log.beat()
        assert value_of((await scripted.log.result(scripted.assign("quick"))).output) == "quick"


async def test_a_cancel_while_it_is_asked_arrives_in_the_thread(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    raised: list[type[BaseException]] = []

    @workflow(name="waits")
    def waits(ctx: BlockingContext) -> None:
        try:
            ctx.step.run_workflow("child", "child")
        except BaseException as error:
            raised.append(type(error))
            raise

    await connect(scripted, waits)
    scripted.script.item = lambda item: None if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("waits")
    await scripted.log.suspension(token)
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.result(token, within=1)).canceled.reason == pb.CANCELED_REASON_REQUESTED
    assert raised == [RunCanceledError]


async def test_threads_that_a_handler_starts_wait_and_step_side_by_side(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed = Counter[str]()
    together = threading.Barrier(4)

    def slow(name: str) -> str:
        executed[name] += 1
        together.wait(5)
        time.sleep(0.05)
        return name

    @workflow(name="threads")
    def threads(ctx: BlockingContext) -> list[str]:
        with ThreadPoolExecutor(8) as pool:
            steps = [pool.submit(ctx.step.run, f"s{n}", slow, f"s{n}") for n in range(4)]
            runs = [pool.submit(ctx.step.run_workflow, f"c{n}", "child") for n in range(4)]
            return [str(future.result()) for future in steps + runs]

    await connect(scripted, threads)
    scripted.script.item = lambda item: (
        resolved(item, *(child_succeeded(wait.step_name, wait.step_name) for wait in item.waits))
        if isinstance(item, pb.Suspension)
        else ok(item)
    )
    token = scripted.assign("threads")
    names = [f"s{n}" for n in range(4)] + [f"c{n}" for n in range(4)]
    assert value_of((await scripted.log.result(token)).output) == names
    assert executed == {f"s{n}": 1 for n in range(4)}
    assert sorted(wait.step_name for wait in scripted.log.begun(token)) == [f"c{n}" for n in range(4)]
