"""The whole timetable of a gateway: which duties there are, that a dead one is noticed, and what is caught up on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import pytest
import pytest_asyncio

from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway
from redflow_server.loops.duties import Duties
from redflow_server.loops.loop import Loop
from redflow_server.rpc.server import WORKER_SERVICE
from redflow_server.store.store import Store
from tests.engine.parts import Engine
from tests.eventually import eventually
from tests.loops.stress import stress, tasks_of
from tests.rpc.calls import Calls

T = TypeVar("T")

ALL: Final[tuple[str, ...]] = (
    *("timetable", "promoter", "deadlines", "timers", "cron", "outbox", "reaper"),
    *("sessions", "registry", "waiters", "unknown", "retention", "event memory", "sweep"),
)
CAUGHT_UP: Final = {
    *("look_ahead", "promote", "expire", "fire_timers", "fire", "apply_outbox", "deliver_events", "fan_out"),
    *("waiters", "sessions"),
}


@pytest.fixture
def engine(store: Store) -> Engine:
    # Its sessions are looked at once a second, its leases too.
    return Engine(store, Timing(lease_ms=30_000))


def duties_of(engine: Engine) -> Duties:
    parts = (engine.upkeep, engine.schedules, engine.sessions, engine.waiters)
    return Duties(*parts, timing=engine.timing, telemetry=engine.telemetry)


@pytest_asyncio.fixture
async def duties(engine: Engine) -> AsyncIterator[Duties]:
    made = duties_of(engine)
    yield made
    await made.stop()


async def kill(loop: Loop) -> None:
    [task] = tasks_of(loop)
    task.cancel()
    await asyncio.wait([task])


def one_of(duties: Duties, name: str) -> Loop:
    return next(loop for loop in duties.loops if loop.name == name)


# ---- all of them ----


def test_the_list_of_duties_is_complete(engine: Engine) -> None:
    duties = duties_of(engine)
    assert tuple(loop.name for loop in duties.loops) == ALL
    made = [value for value in vars(duties).values() if isinstance(value, Loop)]
    assert len(made) == len(ALL), "one that is made is in the list, so it is started, watched and stopped"
    assert set(made) == set(duties.loops)


@pytest.mark.parametrize("name", ALL)
async def test_every_duty_can_be_started_and_stopped_at_any_moment(engine: Engine, name: str) -> None:
    await stress(lambda: one_of(duties_of(engine), name))
    assert engine.telemetry.counters["faults"] == 0


async def test_all_duties_do_their_passes_without_a_fault(engine: Engine, duties: Duties) -> None:
    duties.start()
    duties.start()
    await eventually(lambda: all(len(tasks_of(loop)) == 1 for loop in duties.loops))
    # The answers of the store keep their order: the last of the first passes has been answered when this has.
    await engine.store.due(0)
    assert duties.dead == ()
    assert engine.telemetry.counters["faults"] == 0

    await duties.stop()
    await duties.stop()

    assert duties.dead == ALL
    assert [task for loop in duties.loops for task in tasks_of(loop)] == []


# ---- dead ones ----


async def test_the_duties_that_do_not_run_are_named(duties: Duties) -> None:
    assert duties.dead == ALL
    duties.start()
    assert duties.dead == ()

    for number, loop in enumerate(duties.loops, 1):
        await kill(loop)
        assert duties.dead == ALL[:number]


async def test_a_gateway_of_which_a_duty_has_died_says_that_it_does_not_serve(gateway: Gateway) -> None:
    calls = Calls(f"127.0.0.1:{gateway.port}")

    async def says(status: str) -> bool:
        return await calls.health_of(WORKER_SERVICE) == status

    try:
        await eventually(lambda: says("SERVING"))

        await kill(one_of(gateway.duties, "reaper"))

        await eventually(lambda: says("NOT_SERVING"), within=3)
        assert await calls.health_of("") == "SERVING", "the process itself is well"
    finally:
        await calls.close()


# ---- catching up ----


async def test_after_a_new_subscription_everything_that_messages_are_about_is_looked_at_at_once(
    engine: Engine,
) -> None:
    passes: Counter[str] = Counter()

    def noted(name: str, tick: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        async def pass_() -> T:
            try:
                return await tick()
            finally:
                passes[name] += 1

        return pass_

    upkeep = engine.upkeep
    for name in (
        *("look_ahead", "promote", "expire", "fire_timers", "apply_outbox", "deliver_events", "fan_out"),
        *("reap", "fail_unknown", "purge", "forget_events", "sweep"),
    ):
        setattr(upkeep, name, noted(name, getattr(upkeep, name)))
    setattr(engine.schedules, "fire", noted("fire", engine.schedules.fire))  # noqa: B010  # a method, for the type checker
    for name, part in (("waiters", engine.waiters), ("sessions", engine.sessions)):
        setattr(part, "tick", noted(name, part.tick))  # noqa: B010  # a method, for the type checker
    duties = duties_of(engine)
    duties.start()
    try:
        await eventually(lambda: passes.keys() >= CAUGHT_UP)
        before = passes["look_ahead"]
        await eventually(lambda: passes["look_ahead"] > before, saying="the passes of each second have just been")
        before_all = Counter(passes)

        duties.catch_up()

        await eventually(lambda: all(passes[name] > before_all[name] for name in CAUGHT_UP), within=0.6)
        counted = ("promote", "expire", "fire_timers", "purge", "forget_events", "sweep")
        assert {name: passes[name] - before_all[name] for name in counted} == {
            "promote": 1,
            "expire": 1,
            "fire_timers": 1,
            "purge": 0,
            "forget_events": 0,
            "sweep": 0,
        }
    finally:
        await duties.stop()
