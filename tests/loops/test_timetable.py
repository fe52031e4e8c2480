"""The timetable wakes the loop of each kind when something is due by the clock of Redis, whatever ours says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from redflow_server.loops.loop import Loop
from redflow_server.loops.timetable import Timetable
from redflow_server.store.replies import Due, Passed
from redflow_server.telemetry import Telemetry
from tests.loops.skipped_time import in_skipped_time, now_s

FIELDS = {
    "scheduled": "scheduled_at_ms",
    "deadlines": "deadline_at_ms",
    "timers": "timer_at_ms",
    "cron": "cron_at_ms",
    "outbox": "outbox_at_ms",
}
"""Under which name each kind is read."""
KINDS = tuple(FIELDS)
LATE_S = 0.001
"""An alarm may come that much after its time, and never before it."""


@dataclass
class RedisClock:
    """Redis' clock as it stands to the local one, and what is due by it."""

    ahead_s: float
    due_at_ms: dict[str, int] = field(default_factory=dict)

    @property
    def now_ms(self) -> int:
        return round((now_s() + self.ahead_s) * 1000)

    async def read(self) -> Due:
        nothing = Due(self.now_ms, None, None, (), 0)
        times: dict[str, Any] = {FIELDS[kind]: at_ms for kind, at_ms in self.due_at_ms.items()}  # Any: fields of Due
        return replace(nothing, **times)


@dataclass
class Table:
    """A timetable that has read the clock once, and when it woke the loop of each kind, by Redis' clock."""

    clock: RedisClock
    timetable: Timetable
    passes: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def woken_after_ms(self, kind: str, since_ms: int) -> list[float]:
        """The passes since the first, which comes with the start of the loop."""
        return [at_ms - since_ms for at_ms in self.passes[kind][1:]]


async def a_table(ahead_s: float) -> Table:
    clock = RedisClock(ahead_s)
    loops: dict[str, Loop] = {}
    table = Table(clock, Timetable(clock.read, loops))
    for kind in KINDS:
        loops[kind] = Loop(kind, _noting(table, kind), 100_000.0, Telemetry())
        loops[kind].start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await table.timetable.tick()
    return table


def _noting(table: Table, kind: str) -> Callable[[], Awaitable[bool]]:
    async def tick() -> bool:
        table.passes[kind].append((now_s() + table.clock.ahead_s) * 1000)
        return False

    return tick


def in_time(*after_ms: int) -> list[object]:
    """Not before these times, and hardly later."""
    return [pytest.approx(ms + LATE_S * 500, abs=LATE_S * 500) for ms in after_ms]


CLOCKS = pytest.mark.parametrize("ahead_s", [0.0, 3600.0, -900.0, 2e9], ids=["right", "ahead", "behind", "since 1970"])


@CLOCKS
@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_is_woken_when_something_of_its_kind_becomes_due_by_the_clock_of_redis(
    ahead_s: float, kind: str
) -> None:
    async def scenario() -> None:
        table = await a_table(ahead_s)
        began_ms = table.clock.now_ms
        table.timetable.due(kind, began_ms + 12_345)
        await asyncio.sleep(100)
        assert table.woken_after_ms(kind, began_ms) == in_time(12_345)
        for other in set(KINDS) - {kind}:
            assert table.woken_after_ms(other, began_ms) == []

    in_skipped_time(scenario())


@CLOCKS
def test_what_is_read_is_woken_for_as_well_as_what_is_heard(ahead_s: float) -> None:
    async def scenario() -> None:
        table = await a_table(ahead_s)
        began_ms = table.clock.now_ms
        for number, kind in enumerate(KINDS):
            table.clock.due_at_ms[kind] = began_ms + 500 + 100 * number
        assert not await table.timetable.tick()
        await asyncio.sleep(100)
        for number, kind in enumerate(KINDS):
            assert table.woken_after_ms(kind, began_ms) == in_time(500 + 100 * number)

    in_skipped_time(scenario())


@pytest.mark.parametrize("overdue_ms", [0, 1, 100_000])
def test_what_is_due_already_wakes_at_once(overdue_ms: int) -> None:
    async def scenario() -> None:
        table = await a_table(3600.0)
        began_ms = table.clock.now_ms
        table.timetable.due("scheduled", began_ms - overdue_ms)
        await asyncio.sleep(100)
        assert table.woken_after_ms("scheduled", began_ms) == in_time(0)

    in_skipped_time(scenario())


def test_an_earlier_time_replaces_a_later_one_and_a_later_one_does_not_replace_an_earlier_one() -> None:
    async def scenario() -> None:
        table = await a_table(3600.0)
        began_ms = table.clock.now_ms
        for after_ms in (900, 500, 700, 500, 300, 301):
            table.timetable.due("scheduled", began_ms + after_ms)
        await asyncio.sleep(100)
        assert table.woken_after_ms("scheduled", began_ms) == in_time(300)

    in_skipped_time(scenario())


def test_a_time_that_is_heard_when_the_last_one_has_passed_is_kept() -> None:
    async def scenario() -> None:
        table = await a_table(3600.0)
        began_ms = table.clock.now_ms
        table.timetable.due("scheduled", began_ms + 100)
        await asyncio.sleep(0.2)
        table.timetable.due("scheduled", began_ms + 300)
        await asyncio.sleep(100)
        assert table.woken_after_ms("scheduled", began_ms) == in_time(100, 300)

    in_skipped_time(scenario())


def test_when_an_alarm_rings_early_the_pass_that_finds_nothing_sets_it_again() -> None:
    """As those of uvloop do, by up to half a millisecond."""

    async def scenario() -> None:
        table = await a_table(3600.0)
        began_ms = table.clock.now_ms
        loop = asyncio.get_running_loop()
        call_at, loop.call_at = loop.call_at, lambda when, *rest: call_at(when - 0.0009, *rest)  # type: ignore[method-assign]  # as said
        table.timetable.due("scheduled", began_ms + 500)
        loop.call_at = call_at  # type: ignore[method-assign]  # only that one
        await asyncio.sleep(0.4997)
        assert table.woken_after_ms("scheduled", began_ms) == [pytest.approx(499.6)]
        assert not table.timetable.passed("scheduled", Passed(0, began_ms + 500))
        await asyncio.sleep(100)
        assert table.woken_after_ms("scheduled", began_ms)[1:] == in_time(500)

    in_skipped_time(scenario())


def test_after_a_pass_the_next_thing_is_in_time() -> None:
    async def scenario() -> None:
        table = await a_table(3600.0)
        began_ms = table.clock.now_ms
        table.timetable.due("scheduled", began_ms + 100)
        await asyncio.sleep(0.101)
        assert not table.timetable.passed("scheduled", Passed(1, began_ms + 200))
        await asyncio.sleep(100)
        assert table.woken_after_ms("scheduled", began_ms) == in_time(100, 200)

    in_skipped_time(scenario())


def test_a_pass_that_left_due_things_is_repeated_and_one_that_left_nothing_is_not() -> None:
    async def scenario() -> None:
        table = await a_table(3600.0)
        passed = table.timetable.passed
        assert passed("scheduled", Passed(100, table.clock.now_ms))
        assert passed("scheduled", Passed(100, table.clock.now_ms - 5))
        assert not passed("scheduled", Passed(100, table.clock.now_ms + 5))
        assert not passed("scheduled", Passed(3, None))

    in_skipped_time(scenario())


def test_what_is_heard_before_the_clock_was_ever_read_is_in_time_after_the_first_reading() -> None:
    async def scenario() -> None:
        table = await a_table(0.0)
        clock = table.clock
        clock.ahead_s = 2e9  # the local clock has nothing to do with that of Redis, and nobody has told the timetable
        began_ms = clock.now_ms
        table.timetable.due("scheduled", began_ms + 500)
        clock.due_at_ms["scheduled"] = began_ms + 500
        await asyncio.sleep(0.1)
        await table.timetable.tick()
        await asyncio.sleep(100)
        assert table.woken_after_ms("scheduled", began_ms) == in_time(500)

    in_skipped_time(scenario())


@pytest.mark.parametrize("jump_s", [3600.0, -0.4])
def test_when_the_clock_of_redis_is_set_the_next_reading_puts_it_right(jump_s: float) -> None:
    async def scenario() -> None:
        table = await a_table(2e9)
        clock = table.clock
        clock.due_at_ms["scheduled"] = clock.now_ms + 7_200_000
        await table.timetable.tick()

        clock.ahead_s += jump_s
        clock.due_at_ms["scheduled"] = due_ms = clock.now_ms + 1_000
        await table.timetable.tick()

        await asyncio.sleep(100)
        assert table.woken_after_ms("scheduled", due_ms) == in_time(0)

    in_skipped_time(scenario())


def test_nothing_is_woken_for_after_a_stop() -> None:
    async def scenario() -> None:
        table = await a_table(0.0)
        began_ms = table.clock.now_ms
        for kind in KINDS:
            table.timetable.due(kind, began_ms + 100)
        table.timetable.stop()
        await asyncio.sleep(100)
        assert [table.woken_after_ms(kind, began_ms) for kind in KINDS] == [[] for _ in KINDS]

    in_skipped_time(scenario())
