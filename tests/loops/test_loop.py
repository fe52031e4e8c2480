"""The timer of every duty: when passes come, what a fault does, and that it starts and stops at any moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.loops.loop import MAX_BACKOFF_S, Loop
from redflow_server.telemetry import Telemetry
from tests.loops.skipped_time import in_skipped_time, now_s
from tests.loops.stress import stress, tasks_of

Tick = Callable[[], Awaitable[bool]]


def a_loop(tick: Tick, interval_s: float = 1.0, telemetry: Telemetry | None = None, jitter: float = 0.0) -> Loop:
    return Loop("duty", tick, interval_s, telemetry or Telemetry(), jitter)


class Passes:
    """A pass that notes when it begins. `outcomes` are what it answers or raises, in order; then there is no more."""

    def __init__(self, *outcomes: bool | Exception, takes_s: float = 0.0) -> None:
        self.times: list[float] = []
        self._outcomes = list(outcomes)
        self._takes_s = takes_s

    async def __call__(self) -> bool:
        self.times.append(now_s())
        await asyncio.sleep(self._takes_s)
        outcome = self._outcomes.pop(0) if self._outcomes else False
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def gaps(self) -> list[float]:
        """The seconds between the beginnings."""
        return [later - earlier for earlier, later in pairwise(self.times)]


async def run_for(loop: Loop, seconds: float) -> None:
    loop.start()
    [task] = tasks_of(loop)
    await asyncio.sleep(seconds)
    if task.done():
        task.result()  # raises what it died of
    assert loop.is_alive
    await loop.stop()


# ---- start and stop ----


async def _returns() -> bool:
    return False


async def _returns_at_length() -> bool:
    await asyncio.sleep(0.001)
    return False


async def _never_returns() -> bool:
    await asyncio.Event().wait()
    return False


async def _has_more() -> bool:
    await asyncio.sleep(0)
    return True


async def _raises() -> bool:
    raise StoreUnavailable


async def _cleans_up() -> bool:
    try:
        await asyncio.sleep(10)
    finally:
        await asyncio.sleep(0.001)
    return False


@pytest.mark.parametrize("tick", [_returns, _returns_at_length, _never_returns, _has_more, _raises, _cleans_up])
def test_a_loop_can_be_started_and_stopped_at_any_moment(tick: Tick) -> None:
    in_skipped_time(stress(lambda: a_loop(tick, 0.001)))


def test_a_stop_ends_the_pass_that_is_under_way_and_waits_until_it_has_cleaned_up() -> None:
    ends: list[str] = []

    async def tick() -> bool:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            ends.append("cleaned up")
        return False

    async def scenario() -> None:
        loop = a_loop(tick)
        loop.start()
        await asyncio.sleep(1)
        await loop.stop()
        assert ends == ["cleaned up"]
        assert now_s() == pytest.approx(1002, abs=0.01)

    in_skipped_time(scenario())


# ---- when passes come ----


def test_the_first_pass_comes_at_once_and_the_next_ones_after_the_interval() -> None:
    async def scenario() -> None:
        passes = Passes()
        await run_for(a_loop(passes, 10.0), 35)
        assert passes.times == pytest.approx([1000, 1010, 1020, 1030], abs=0.001)

    in_skipped_time(scenario())


def test_the_interval_lies_between_the_end_of_a_pass_and_the_next_one() -> None:
    async def scenario() -> None:
        passes = Passes(takes_s=25)
        await run_for(a_loop(passes, 10.0), 100)
        assert passes.gaps == pytest.approx([35, 35], abs=0.001)

    in_skipped_time(scenario())


def test_the_jitter_makes_pauses_longer_by_up_to_its_share_and_each_by_another_one() -> None:
    async def scenario() -> None:
        passes = Passes()
        await run_for(a_loop(passes, 10.0, jitter=0.1), 10_000)
        gaps = passes.gaps
        assert len(gaps) > 900
        assert all(9.999 <= gap <= 11.001 for gap in gaps)
        assert max(gaps) - min(gaps) > 0.9, "they cover the whole range"

    in_skipped_time(scenario())


def test_a_pass_that_leaves_more_to_do_is_repeated_at_once() -> None:
    async def scenario() -> None:
        passes = Passes(True, True, True, False, True, takes_s=1)
        await run_for(a_loop(passes, 100.0), 150)
        assert passes.gaps == pytest.approx([1, 1, 1, 101, 1], abs=0.001)

    in_skipped_time(scenario())


def test_a_loop_that_is_woken_at_rest_passes_at_once_and_rests_for_a_whole_interval_then() -> None:
    async def scenario() -> None:
        passes = Passes()
        loop = a_loop(passes, 10.0)
        loop.start()
        await asyncio.sleep(3)
        loop.wake()
        loop.wake()
        await asyncio.sleep(15)
        await loop.stop()
        assert passes.times == pytest.approx([1000, 1003, 1013], abs=0.001)

    in_skipped_time(scenario())


def test_a_loop_that_is_woken_during_a_pass_passes_again_since_the_pass_may_have_looked_before() -> None:
    async def scenario() -> None:
        passes = Passes(takes_s=5)
        loop = a_loop(passes, 100.0)
        loop.start()
        await asyncio.sleep(2)
        loop.wake()
        loop.wake()
        await asyncio.sleep(50)
        await loop.stop()
        assert passes.times == pytest.approx([1000, 1005], abs=0.001)

    in_skipped_time(scenario())


# ---- faults ----


def test_a_pass_that_raises_is_logged_once_and_counted_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        telemetry = Telemetry()
        passes = Passes(ValueError("first"), ValueError("second"))
        with caplog.at_level(logging.DEBUG):
            await run_for(a_loop(passes, 1.0, telemetry), 60)

        assert telemetry.counters["faults"] == 2
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
        assert all("in loop duty" in record.getMessage() for record in caplog.records)
        assert "ValueError: first" in caplog.text
        assert len(passes.times) > 50

    in_skipped_time(scenario())


def test_a_refusal_such_as_that_of_a_store_that_is_away_is_counted_but_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        telemetry = Telemetry()
        await run_for(a_loop(Passes(StoreUnavailable(), StoreUnavailable()), 1.0, telemetry), 60)
        assert telemetry.counters == {"refused.STORE_UNAVAILABLE": 2}
        assert caplog.records == []

    in_skipped_time(scenario())


@pytest.mark.parametrize("interval_s", [0.02, 1.0, 4.0, 60.0])
def test_a_loop_that_fails_backs_off_longer_each_time_up_to_a_bound_and_not_after_it_has_succeeded(
    interval_s: float,
) -> None:
    async def scenario() -> None:
        faults = 12
        passes = Passes(*(ValueError() for _ in range(faults)), True, ValueError())
        await run_for(a_loop(passes, interval_s), 1000)
        for number, gap in enumerate(passes.gaps[:faults], 1):
            longest = min(MAX_BACKOFF_S, interval_s * 2**number)
            assert longest / 2 - 0.001 <= gap <= longest + 0.001
        assert passes.gaps[faults] == pytest.approx(0, abs=0.001), "a success with more to do is followed at once"
        assert passes.gaps[faults + 1] <= min(MAX_BACKOFF_S, interval_s * 2) + 0.001, "and a fault is the first again"
        assert passes.gaps[faults + 2] == pytest.approx(interval_s, abs=0.001)

    in_skipped_time(scenario())


def test_a_loop_that_fails_is_not_hurried_by_being_woken() -> None:
    async def scenario() -> None:
        passes = Passes(*(ValueError() for _ in range(5)))
        loop = a_loop(passes, 1.0)
        loop.start()
        for _ in range(100):
            loop.wake()
            await asyncio.sleep(0.01)
        await loop.stop()
        assert len(passes.times) <= 2

    in_skipped_time(scenario())


@pytest.mark.parametrize("interval_s", [0.02, 1.0, 30.0])
def test_a_loop_goes_on_however_long_an_outage_lasts(interval_s: float) -> None:
    async def scenario() -> None:
        faults = 1500
        passes = Passes(*(StoreUnavailable() for _ in range(faults)))
        await run_for(a_loop(passes, interval_s), faults * MAX_BACKOFF_S + 60)
        assert len(passes.times) > faults

    in_skipped_time(scenario())
