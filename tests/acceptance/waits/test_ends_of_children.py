"""Each way in which a run can end tells the run that waits for it, within a second, by a typed error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from redflow_sdk import (
    ChildFailedError,
    Client,
    Context,
    NonRetriableError,
    RetryPolicy,
    Run,
    StepFailedError,
    UnknownWorkflowError,
    Worker,
    Workflow,
    workflow,
)
from tests.acceptance.processes import worker_crash
from tests.acceptance.test_seed_recovery import spawn
from tests.acceptance.waits.seen import has_begun_to_wait
from tests.conftest import StartGateway, StartWorker
from tests.eventually import eventually

WITHIN = timedelta(seconds=1)
QUEUE = "ends"


@dataclass
class Ended:
    """What the waiting handler saw: the type of the error, what the child failed of, and its kind."""

    error: str
    of: str = ""
    kind: str = ""


def seen(error: Exception) -> Ended:
    cause = error.failure.cause if isinstance(error, StepFailedError) else None
    return Ended(type(error).__name__, cause.type if cause else "", cause.kind if cause else "")


@workflow(name="parent-of-ends", queue="parents")
async def parent(ctx: Context, child: str) -> Ended:
    try:
        await ctx.step.run_workflow("child", child, {"n": 1}, queue=QUEUE)
    except Exception as error:  # whatever it is, it is what is looked at
        return seen(error)
    return Ended("none")


@workflow(name="parent-without-queue", queue="parents")
async def parent_of_unknown(ctx: Context, child: str) -> Ended:
    try:
        await ctx.step.run_workflow("child", child)
    except UnknownWorkflowError as error:
        return seen(error)
    return Ended("none")


@workflow(name="starter-without-queue", queue="parents")
async def starter_of_unknown(ctx: Context, child: str) -> Ended:
    try:
        await ctx.step.start_workflow("child", child)
    except UnknownWorkflowError as error:
        return seen(error)
    return Ended("none")


@workflow(name="parent-in-a-hurry", queue="parents")
async def parent_in_a_hurry(ctx: Context, child: str) -> Ended:
    try:
        await ctx.step.run_workflow("child", child, {"n": 1}, queue=QUEUE, timeout=0.4)
    except TimeoutError as error:
        return seen(error)
    return Ended("none")


# ---- what children do ----


@workflow(name="child-succeeds", queue=QUEUE)
async def succeeds(ctx: Context, input: dict[str, int]) -> int:
    return input["n"]


@workflow(name="child-raises", queue=QUEUE)
async def raises(ctx: Context, input: dict[str, int]) -> None:
    raise LookupError("nothing there")


@workflow(name="child-raises-twice", queue=QUEUE, retry=RetryPolicy(max_attempts=2, initial=0.05))
async def raises_twice(ctx: Context, input: dict[str, int]) -> None:
    raise LookupError(f"attempt {ctx.run.attempt}")


@workflow(name="child-gives-up", queue=QUEUE, retry=RetryPolicy(max_attempts=5, initial=20.0))
async def gives_up(ctx: Context, input: dict[str, int]) -> None:
    raise NonRetriableError("for good")


@workflow(name="child-fails-in-a-step", queue=QUEUE)
async def fails_in_a_step(ctx: Context, input: dict[str, int]) -> None:
    await ctx.step.run("divide", lambda: 1 / 0)


@workflow(name="child-takes-something-else", queue=QUEUE)
async def takes_something_else(ctx: Context, input: list[str]) -> None:
    pass


@workflow(name="child-returns-no-json", queue=QUEUE)
async def returns_no_json(ctx: Context, input: dict[str, int]) -> object:
    return object()


@workflow(name="child-uses-a-name-twice", queue=QUEUE)
async def uses_a_name_twice(ctx: Context, input: dict[str, int]) -> None:
    await ctx.step.sleep("name", 0.01)
    await ctx.step.sleep("name", 0.01)


@workflow(name="child-takes-too-long", queue=QUEUE, run_timeout=0.3)
async def takes_too_long(ctx: Context, input: dict[str, int]) -> None:
    await asyncio.sleep(60)


@workflow(name="child-sleeps-too-long", queue=QUEUE, run_timeout=0.3)
async def sleeps_too_long(ctx: Context, input: dict[str, int]) -> None:
    await ctx.step.sleep("long", 3600)


@workflow(name="child-stays", queue=QUEUE)
async def stays(ctx: Context, input: dict[str, int]) -> None:
    await asyncio.sleep(60)


@workflow(name="child-waits", queue=QUEUE)
async def waits(ctx: Context, input: dict[str, int]) -> None:
    await ctx.step.wait_for_event("never", "nobody.emits")


@workflow(name="child-is-late", queue="elsewhere", start_timeout=0.3)
async def is_late(ctx: Context, input: dict[str, int]) -> None:
    pass


@workflow(name="child-raises-and-tells", queue=QUEUE, on_failure=lambda context: None)
async def raises_and_tells(ctx: Context, input: dict[str, int]) -> None:
    raise LookupError("nothing there")


CHILDREN = (
    *(succeeds, raises, raises_twice, gives_up, fails_in_a_step, takes_something_else, returns_no_json),
    *(uses_a_name_twice, takes_too_long, sleeps_too_long, stays, waits, raises_and_tells),
)

BY_THEMSELVES = {
    succeeds.name: Ended("none"),
    raises.name: Ended("ChildFailedError", "LookupError", "error"),
    raises_twice.name: Ended("ChildFailedError", "LookupError", "error"),
    gives_up.name: Ended("ChildFailedError", "NonRetriableError", "non_retriable"),
    fails_in_a_step.name: Ended("ChildFailedError", "ZeroDivisionError", "error"),
    takes_something_else.name: Ended("ChildFailedError", "InputValidationError", "validation"),
    returns_no_json.name: Ended("ChildFailedError", "SerializationError", "serialization"),
    uses_a_name_twice.name: Ended("ChildFailedError", "DuplicateStepError", "non_retriable"),
    takes_too_long.name: Ended("ChildFailedError", "RunTimeoutError", "timeout"),
    sleeps_too_long.name: Ended("ChildFailedError", "RunTimeoutError", "timeout"),
    raises_and_tells.name: Ended("ChildFailedError", "LookupError", "error"),
}
"""How children end that nobody disturbs."""


async def child_of(client: Client, run_id: str) -> Run:
    [step] = [step for step in await client.get_run_steps(run_id) if step.kind == "child"]
    return await client.get_run(step.child_run_id)


def at(time: datetime | None) -> datetime:
    assert time is not None
    return time


async def assert_woken_within_a_second(client: Client, parent_id: str) -> Run:
    """Gives the child."""
    child = await child_of(client, parent_id)
    ended = (await client.get_run(parent_id)).finished_at
    assert at(ended) - at(child.finished_at) < WITHIN
    return child


@pytest_asyncio.fixture
async def parents(start_worker: StartWorker) -> AsyncIterator[Worker]:
    """A worker of the runs that wait."""
    yield await start_worker(parent, parent_of_unknown, starter_of_unknown, parent_in_a_hurry, owner="parents")


@pytest.mark.parametrize("child", BY_THEMSELVES)
async def test_a_child_that_ends_by_itself_wakes_its_parent(
    child: str, client: Client, start_worker: StartWorker, parents: Worker
) -> None:
    await start_worker(*CHILDREN, owner="children")
    handle = await client.start(parent, child)

    assert await handle.result(timeout=10) == BY_THEMSELVES[child]
    ended = await assert_woken_within_a_second(client, handle.id)
    assert ended.status == ("succeeded" if child == succeeds.name else "failed")


Disturb = Callable[[Client, Worker, str], Awaitable[None]]


async def cancel(client: Client, worker: Worker, run_id: str) -> None:
    assert await client.cancel_run(run_id, reason="enough")


async def stop_its_worker(client: Client, worker: Worker, run_id: str) -> None:
    await worker.stop()


async def is_at_work(client: Client, parent_id: str) -> bool:
    """Whether the child's handler has begun, and waits for its event if it waits for one."""
    steps = await client.get_run_steps(parent_id)
    child = await client.get_run(steps[0].child_run_id) if steps else None
    if child is None or child.status not in ("running", "waiting"):
        return False
    return child.workflow == stays.name or await has_begun_to_wait(client, child.id, "never")


@pytest.mark.parametrize(
    ("child", "disturb"), [(stays.name, cancel), (waits.name, cancel), (stays.name, stop_its_worker)]
)
async def test_a_child_that_is_canceled_by_whomever_wakes_its_parent(
    child: str, disturb: Disturb, client: Client, start_worker: StartWorker, parents: Worker
) -> None:
    worker = await start_worker(*CHILDREN, owner="children")
    handle = await client.start(parent, child)
    await eventually(lambda: is_at_work(client, handle.id))

    await disturb(client, worker, (await child_of(client, handle.id)).id)

    assert await handle.result(timeout=10) == Ended("ChildCanceledError")
    assert (await assert_woken_within_a_second(client, handle.id)).status == "canceled"


async def test_a_child_that_is_canceled_before_anybody_took_it_wakes_its_parent(
    client: Client, parents: Worker
) -> None:
    handle = await client.start(parent, succeeds.name)
    await eventually(lambda: has_begun_to_wait(client, handle.id, "child"))

    assert await client.cancel_run((await child_of(client, handle.id)).id)

    assert await handle.result(timeout=10) == Ended("ChildCanceledError")
    assert (await assert_woken_within_a_second(client, handle.id)).attempt == 0


async def test_a_child_that_nobody_takes_in_its_time_to_start_wakes_its_parent(
    client: Client, start_worker: StartWorker, parents: Worker
) -> None:
    await start_worker(is_late, owner="children")  # which makes it known, and serves another queue
    handle = await client.start(parent, is_late.name)

    assert await handle.result(timeout=10) == Ended("ChildFailedError", "StartTimeoutError", "timeout")
    child = await assert_woken_within_a_second(client, handle.id)
    assert (child.status, child.delivery_count) == ("failed", 0)


async def test_a_child_whose_worker_dies_too_often_wakes_its_parent(
    start_gateway: StartGateway, start_worker_at: StartWorker, tmp_path: Path
) -> None:
    target = f"127.0.0.1:{(await start_gateway(max_losses=0)).port}"
    counts = tmp_path / "counts"
    counts.touch()

    @workflow(name="parent-of-lost")
    async def parent_of_lost(ctx: Context) -> Ended:
        try:
            await ctx.step.run_workflow("child", worker_crash.WORKFLOW, queue=worker_crash.QUEUE)
        except ChildFailedError as error:
            return seen(error)
        return Ended("none")

    await start_worker_at(target, parent_of_lost, owner="parents")
    dying = spawn(worker_crash.__name__, target, str(counts))
    try:
        async with Client(target) as client:
            handle = await client.start(parent_of_lost)
            await eventually(lambda: "step2 begins" in counts.read_text(), within=15)
            dying.kill()

            assert await handle.result(timeout=15) == Ended("ChildFailedError", "WorkerLostError", "worker_lost")
            await assert_woken_within_a_second(client, handle.id)
    finally:
        dying.kill()
        dying.wait()


async def test_a_child_that_does_not_end_in_the_time_of_the_step_is_canceled_and_its_parent_goes_on(
    client: Client, start_worker: StartWorker, parents: Worker
) -> None:
    await start_worker(*CHILDREN, owner="children")
    for child in (stays.name, waits.name):
        handle = await client.start(parent_in_a_hurry, child)

        assert await handle.result(timeout=10) == Ended("TimeoutError")
        [step] = await client.get_run_steps(handle.id)
        assert timedelta(seconds=0.4) <= at(step.finished_at) - at(step.started_at) < timedelta(seconds=0.4) + WITHIN
        await eventually(lambda run_id=step.child_run_id: is_canceled(client, run_id))


async def is_canceled(client: Client, run_id: str) -> bool:
    return (await client.get_run(run_id)).status == "canceled"


async def test_a_parent_of_a_child_that_nobody_serves_says_so_until_the_time_of_the_step_is_over(
    client: Client, parents: Worker
) -> None:
    handle = await client.start(parent_in_a_hurry, "nobody-serves")
    await eventually(lambda: has_begun_to_wait(client, handle.id, "child"))
    [wait] = (await handle.get()).waiting_for
    assert wait.kind == "child"
    assert "no worker serves 'nobody-serves' on queue 'ends'" in wait.detail
    assert wait.until is not None

    assert await handle.result(timeout=10) == Ended("TimeoutError")
    await eventually(lambda: is_child_canceled(client, handle.id))


async def is_child_canceled(client: Client, parent_id: str) -> bool:
    return (await child_of(client, parent_id)).status == "canceled"


@pytest.mark.parametrize("asking", [parent_of_unknown, starter_of_unknown], ids=["waits for it", "starts it"])
async def test_a_child_of_a_workflow_that_is_not_known_and_has_no_queue_fails_at_once(
    asking: Workflow[str, Ended], client: Client, parents: Worker
) -> None:
    handle = await client.start(asking, "nobody-knows")

    assert await handle.result(timeout=10) == Ended("UnknownWorkflowError")
    run = await handle.get()
    assert at(run.finished_at) - run.created_at < WITHIN


async def test_a_run_that_would_wait_for_itself_is_told_so(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="circle")
    async def circle(ctx: Context) -> str:
        try:
            await ctx.step.run_workflow("itself", circle, idempotency_key="one")
        except StepFailedError as error:
            return error.failure.kind
        return "none"

    await start_worker(circle)
    handle = await client.start(circle, idempotency_key="one")

    assert await handle.result(timeout=10) == "await_cycle"


async def test_what_became_of_a_child_stays_so_in_later_attempts(client: Client, start_worker: StartWorker) -> None:
    errors: list[str] = []

    @workflow(name="parent-with-retries", retry=RetryPolicy(max_attempts=3, initial=0.02))
    async def parent_with_retries(ctx: Context) -> None:
        try:
            await ctx.step.run_workflow("child", "child-raises", {"n": 1})
        except ChildFailedError as error:
            errors.append(f"{ctx.run.attempt}: {error.failure.cause and error.failure.cause.message}")
            raise

    await start_worker(parent_with_retries, *CHILDREN)
    handle = await client.start(parent_with_retries)
    await eventually(lambda: has_failed(client, handle.id), within=10)

    assert errors == [f"{attempt}: nothing there" for attempt in (1, 2, 3)]
    assert len(await client.list_runs(workflow="child-raises").page()) == 1


async def has_failed(client: Client, run_id: str) -> bool:
    return (await client.get_run(run_id)).status == "failed"
