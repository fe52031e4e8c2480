"""Two gateways on one Redis prefix: workers and clients are spread over both, and all holds as with one.

The behaviours of the original engine run here again: each workflow has a worker at another gateway than the next one,
and the client talks to the one where the first of them is not. What one gateway can do to another comes after them.

    make test TESTS=tests/acceptance/test_two_gateways.py
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio

from redflow_sdk import (
    CanceledError,
    Client,
    Context,
    Cron,
    FailureContext,
    RetryPolicy,
    RunFailedError,
    StepFailedError,
    Worker,
    workflow,
)
from redflow_sdk.workflow import AnyWorkflow
from redflow_server.config import Config
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys
from tests.acceptance import (
    test_seed_cancellation,
    test_seed_children,
    test_seed_cron,
    test_seed_events,
    test_seed_failure_handlers,
    test_seed_idempotency,
    test_seed_retries,
    test_seed_runs,
)
from tests.acceptance.family import Family
from tests.acceptance.processes import worker_failing
from tests.acceptance.schedules import EverySecond
from tests.acceptance.test_seed_recovery import spawn
from tests.acceptance.waits.seen import has_begun_to_wait
from tests.acceptance.waits.ways import VARIABLE
from tests.conftest import CheckInvariants, StartGateway, StartWorker
from tests.eventually import eventually
from tests.line import gateway_behind_line
from tests.redis_command import RedisCommand

SEEDS = (
    test_seed_cancellation,
    test_seed_children,
    test_seed_cron,
    test_seed_events,
    test_seed_failure_handlers,
    test_seed_idempotency,
    test_seed_retries,
    test_seed_runs,
)


def with_workers(module: ModuleType) -> dict[str, Callable[..., object]]:
    """The tests of a module whose workers come from a fixture, which is another one here."""
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and "start_worker" in inspect.signature(test).parameters
    }


for seed in SEEDS:
    globals().update(with_workers(seed))


@pytest.fixture
def config(config: Config) -> Config:
    """With leases so long that a gateway can be stopped before it has written down that a run was received."""
    return replace(config, timing=replace(config.timing, lease_ms=2000))


@pytest_asyncio.fixture
async def gateways(start_gateway: StartGateway) -> tuple[Gateway, Gateway]:
    return await start_gateway(), await start_gateway()


@pytest.fixture
def gateway(gateways: tuple[Gateway, Gateway]) -> Gateway:
    """The one that clients talk to."""
    return gateways[1]


@pytest_asyncio.fixture
async def start_worker(gateways: tuple[Gateway, Gateway]) -> AsyncIterator[StartWorker]:
    """Starts a worker for each workflow, every other one at the other gateway. Returns the first."""
    workers: list[Worker] = []
    places = itertools.cycle(f"127.0.0.1:{gateway.port}" for gateway in gateways)

    async def start(*workflows: object, **settings: object) -> Worker:
        started: list[Worker] = []
        for number, served in enumerate([[one] for one in workflows] or [[]]):
            owned = {"owner": f"{number}", **settings}  # one owner, one set of workflows
            started.append(Worker(next(places), workflows=served, **owned))  # type: ignore[arg-type]  # any of Worker's
        workers.extend(started)
        await asyncio.gather(*(worker.start() for worker in started))
        return started[0]

    yield start
    await asyncio.gather(*(worker.stop() for worker in workers))


# ---- one gateway and the other ----


@dataclass(frozen=True)
class Side:
    """A gateway, where it listens, and a client of it."""

    gateway: Gateway
    target: str
    client: Client


@pytest_asyncio.fixture
async def sides(gateways: tuple[Gateway, Gateway]) -> AsyncIterator[tuple[Side, Side]]:
    targets = [f"127.0.0.1:{gateway.port}" for gateway in gateways]
    async with Client(targets[0]) as first, Client(targets[1]) as second:
        yield Side(gateways[0], targets[0], first), Side(gateways[1], targets[1], second)


@asynccontextmanager
async def working(target: str, *workflows: AnyWorkflow, owner: str = "default") -> AsyncIterator[Worker]:
    """A worker that is stopped at the end, whatever it has at work."""
    worker = Worker(target, workflows=workflows, owner=owner)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


@pytest.fixture(params=["park", "suspend"])
def waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handlers of workers wait in memory, or are ended and begin again."""
    monkeypatch.setenv(VARIABLE, request.param)


IN_BOTH_WAYS = pytest.mark.usefixtures("waiting")


async def has_status(client: Client, run_id: str, status: str) -> bool:
    return (await client.get_run(run_id)).status == status


@IN_BOTH_WAYS
async def test_a_parent_at_one_gateway_goes_on_when_its_child_at_the_other_has_ended(
    sides: tuple[Side, Side], check_invariants: CheckInvariants
) -> None:
    here, there = sides
    family = Family()
    async with (
        working(here.target, family.parent, owner="parents"),
        working(there.target, family.child, owner="children"),
    ):
        handle = await there.client.start(family.parent, 5)
        waiting = [asyncio.create_task(side.client.handle(handle.id).result(timeout=10)) for side in sides]
        await eventually(lambda: has_begun_to_wait(here.client, handle.id, "child"))
        [child_run] = await here.client.list_runs(workflow="family-child").page()
        await eventually(lambda: has_status(here.client, child_run.id, "running"))
        await check_invariants()

        family.may_go_on.set()

        assert await asyncio.gather(*waiting) == [11, 11]
    assert family.log == ["before", "child begins", "after"]
    assert (await here.client.get_run(child_run.id)).parent_run_id == handle.id


@IN_BOTH_WAYS
async def test_a_cancel_at_one_gateway_cascades_to_children_at_the_other(sides: tuple[Side, Side]) -> None:
    here, there = sides
    family = Family()
    async with (
        working(here.target, family.grandparent, family.child, owner="odd"),
        working(there.target, family.parent, owner="even"),
    ):
        handle = await here.client.start(family.grandparent, 5)
        await eventually(lambda: "child begins" in family.log)
        await eventually(lambda: has_begun_to_wait(here.client, handle.id, "parent"))

        assert await there.client.cancel_run(handle.id, reason="enough") is True

        for workflow_name in ("family-grandparent", "family-parent", "family-child"):
            [run] = await there.client.list_runs(workflow=workflow_name).page()
            with pytest.raises(CanceledError):
                await here.client.handle(run.id).result(timeout=5)
            assert (await there.client.get_run(run.id)).status == "canceled"
        assert (await here.client.get_run(handle.id)).cancel_reason == "enough"
        await eventually(lambda: "child is stopped" in family.log)
    assert family.log == ["before", "child begins", "child is stopped"]


async def test_an_event_emitted_at_either_gateway_starts_each_subscriber_once(sides: tuple[Side, Side]) -> None:
    seen: Counter[tuple[str, int]] = Counter()

    def subscriber(name: str, side: Side) -> AbstractAsyncContextManager[Worker]:
        @workflow(name=name, queue=f"q_{name}", events=["both.sides"])
        async def handler(ctx: Context, n: int) -> None:
            seen[name, n] += 1

        return working(side.target, handler, owner=name)

    async with subscriber("one", sides[0]), subscriber("other", sides[1]):
        emits = [
            side.client.emit_event("both.sides", n, idempotency_key=f"event {n}")
            for n in range(5)
            for side in sides * 2
        ]
        answers = await asyncio.gather(*emits)

        run_ids = {run_id for answer in answers for run_id in answer}
        assert len(run_ids) == 10
        assert len({tuple(answer) for answer in answers}) == 5, "all emits with one key are one"
        await asyncio.gather(*(sides[0].client.handle(run_id).result(timeout=5) for run_id in run_ids))
    assert seen == Counter({(name, n): 1 for name in ("one", "other") for n in range(5)})


async def test_each_occurrence_of_a_schedule_starts_one_run_also_when_one_gateway_stops(
    sides: tuple[Side, Side], redis: RedisCommand, keys: Keys
) -> None:
    ticks: list[str] = []

    @workflow(name="both-tick", cron=[Cron("* * * * * *")])
    async def both_tick(ctx: Context) -> None:
        ticks.append(ctx.run.id)

    here, there = sides
    account = EverySecond("both-tick", there.client, redis, keys)
    async with working(there.target, both_tick), AsyncExitStack() as leaving:
        async with account.registering():
            await leaving.enter_async_context(working(here.target, both_tick))
        await eventually(lambda: len(ticks) >= 2)

        await leaving.aclose()
        await here.gateway.stop()

        before = len(ticks)
        await eventually(lambda: len(ticks) >= before + 2)
        await account.check()
        assert set(Counter(ticks).values()) == {1}


async def test_a_failure_handler_runs_at_the_other_gateway_when_its_worker_dies(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    here, there = sides
    counts = tmp_path / "counts"
    counts.touch()
    seen: list[FailureContext] = []

    @workflow(
        name=worker_failing.WORKFLOW,
        queue=worker_failing.QUEUE,
        retry=RetryPolicy(max_attempts=2, initial=0.01),
        on_failure=seen.append,
    )
    async def fails_for_good(ctx: Context, input: dict[str, int]) -> None:
        raise AssertionError("it has failed for good")

    dying = spawn(worker_failing.__name__, here.target, str(counts))
    try:
        handle = await here.client.start(fails_for_good, {"n": 1})
        waiting = asyncio.create_task(there.client.handle(handle.id).result(timeout=15))
        await eventually(lambda: "failure handler begins" in counts.read_text(), within=10)
    finally:
        dying.kill()
        dying.wait()
    assert not waiting.done(), "nobody sees the run as failed before its failure handler has ended"

    async with working(there.target, fails_for_good):
        with pytest.raises(RunFailedError, match="always fails"):
            await waiting

    [failed] = seen
    # The exception itself has died with its process: this one is made of what is on record.
    assert isinstance(failed.error, RuntimeError)
    assert isinstance(failed.error.__cause__, StepFailedError)
    assert (failed.failure.type, failed.failure.message) == ("RuntimeError", "always fails")
    assert (failed.input, failed.run.id, failed.run.attempt) == ({"n": 1}, handle.id, 2)
    assert counts.read_text().splitlines() == ["attempt 1", "attempt 2", "failure handler begins"]
    run = await handle.get()
    assert (run.status, run.attempt, run.failure_handler) == ("failed", 2, "done")


async def test_results_are_told_to_all_who_wait_at_either_gateway(sides: tuple[Side, Side]) -> None:
    family = Family()
    async with working(sides[0].target, family.child):
        handles = [await side.client.start(family.child, n) for n in range(5) for side in sides]
        waiting = [
            asyncio.create_task(side.client.handle(handle.id).result(timeout=10))
            for handle in handles
            for side in sides
        ]
        await eventually(lambda: len(family.log) == len(handles))
        assert not any(task.done() for task in waiting)

        family.may_go_on.set()

        assert await asyncio.gather(*waiting) == [n * 2 for n in range(5) for _ in range(4)]


async def received_before(redis: RedisCommand, keys: Keys, run_id: str) -> None:
    """Until the gateway has written down that a worker has the run, which gives it the whole lease."""
    await eventually(lambda: redis("HGET", keys.run(run_id), "acked"))


async def just_delivered(redis: RedisCommand, keys: Keys, run_id: str) -> None:
    """At once."""


DELIVERIES = pytest.mark.parametrize("delivery", [received_before, just_delivered])
Delivery = Callable[[RedisCommand, Keys, str], Awaitable[None]]


@DELIVERIES
@IN_BOTH_WAYS
async def test_when_one_gateway_stops_its_runs_go_on_at_the_other(
    delivery: Delivery, sides: tuple[Side, Side], redis: RedisCommand, keys: Keys
) -> None:
    """The worker of the one that stops finds no other gateway, and ends its handlers before others begin."""
    here, there = sides
    family = Family()
    async with working(here.target, family.parent, family.child):
        handle = await here.client.start(family.parent, 5)
        await eventually(lambda: "child begins" in family.log)
        await eventually(lambda: has_begun_to_wait(there.client, handle.id, "child"))
        [child_run] = await there.client.list_runs(workflow="family-child").page()
        await delivery(redis, keys, child_run.id)

        async with working(there.target, family.parent, family.child):
            waiting = asyncio.create_task(there.client.handle(handle.id).result(timeout=15))
            await here.gateway.stop()

            await eventually(lambda: family.log.count("child begins") == 2, within=10)
            assert family.log == ["before", "child begins", "child is stopped", "child begins"]
            family.may_go_on.set()

            assert await waiting == 11
    assert family.log[4:] == ["after"]
    for run in await there.client.list_runs().page():
        assert (run.status, run.attempt) == ("succeeded", 1)


@DELIVERIES
@IN_BOTH_WAYS
async def test_when_one_gateway_loses_redis_its_runs_go_on_at_the_other(
    delivery: Delivery,
    start_gateway: StartGateway,
    config: Config,
    redis: RedisCommand,
    keys: Keys,
) -> None:
    family = Family()
    there = f"127.0.0.1:{(await start_gateway()).port}"
    async with gateway_behind_line(config) as (here, line), Client(there) as client:
        async with working(f"127.0.0.1:{here.port}", family.parent, family.child) as orphan:
            handle = await client.start(family.parent, 5)
            await eventually(lambda: "child begins" in family.log)
            await eventually(lambda: has_begun_to_wait(client, handle.id, "child"))
            [child_run] = await client.list_runs(workflow="family-child").page()
            await delivery(redis, keys, child_run.id)

            async with working(there, family.parent, family.child):
                line.hold_requests()
                await eventually(lambda: family.log.count("child begins") == 2, within=10)
                assert family.log == ["before", "child begins", "child is stopped", "child begins"]
                family.may_go_on.set()
                assert await handle.result(timeout=10) == 11

                # What the gateway had under way reaches Redis at last, and changes nothing.
                ended = await client.list_runs().page()
                line.let_go()
                await orphan.drain()
                assert await client.list_runs().page() == ended
        assert {(run.status, run.attempt) for run in ended} == {("succeeded", 1)}
        assert family.log[4:] == ["after"]
