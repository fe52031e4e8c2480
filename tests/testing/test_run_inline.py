"""Running workflows inline: virtual time, and what a result says. That it comes to the same as on a real gateway is in
test_agreement.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from redflow_sdk import BlockingContext, CanceledError, Context, Event, RetryPolicy, RunFailedError, workflow
from redflow_sdk.testing import EndlessPlay, ExternalEvent, run_inline
from tests.eventually import eventually
from tests.testing.scenario import begin_play, calls, fails

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
async def _a_play_of_its_own() -> None:
    begin_play()


# ---- virtual time ----


@workflow
async def long_sleeps(ctx: Context) -> list[str]:
    first = await ctx.step.run("first", lambda: "first")
    await ctx.step.sleep("days", days=30)
    await ctx.step.sleep_until("date", NOON + timedelta(days=31))
    return [first, await ctx.step.run("last", lambda: "last")]


async def test_sleeps_pass_at_once_and_every_time_is_virtual() -> None:
    began = time.monotonic()
    result = await run_inline(long_sleeps, now=NOON)
    assert time.monotonic() - began < 5
    assert result.output == ["first", "last"]
    assert result.elapsed == timedelta(days=31).total_seconds()
    assert (result.run.created_at, result.run.finished_at) == (NOON, NOON + timedelta(days=31))
    assert [step.finished_at for step in result.steps] == [
        NOON,
        NOON + timedelta(days=30),
        NOON + timedelta(days=31),
        NOON + timedelta(days=31),
    ]


@workflow(retry=RetryPolicy(max_attempts=3, initial=60, multiplier=2, maximum=600))
async def backs_off(ctx: Context) -> int:
    return fails(2, ValueError("not yet"))


async def test_delays_between_attempts_are_exact() -> None:
    result = await run_inline(backs_off)
    assert (result.output, result.attempts, result.elapsed) == (3, 3, 180.0)


@workflow
async def tries(ctx: Context) -> int:
    retry = RetryPolicy(max_attempts=4, initial=0.5, multiplier=10, maximum=600)
    return await ctx.step.run("flaky", fails, 3, ValueError("not yet"), retry=retry)


@workflow
def blocking_tries(ctx: BlockingContext) -> int:
    retry = RetryPolicy(max_attempts=4, initial=0.5, multiplier=10, maximum=600)
    return ctx.step.run("flaky", fails, 3, ValueError("not yet"), retry=retry)


@pytest.mark.parametrize("tried", [tries, blocking_tries], ids=lambda tried: tried.name)
async def test_pauses_between_tries_pass_too_short_ones_and_those_that_are_waits(tried: object) -> None:
    began = time.monotonic()
    result = await run_inline(tried, now=NOON)  # type: ignore[call-overload]  # either kind
    assert time.monotonic() - began < 5
    assert (result.output, result.step("flaky").tries, result.elapsed) == (4, 4, 55.5)
    assert result.step("flaky").started_at == NOON, "with its first try"


@workflow
async def waits_for_payment(ctx: Context, timeout: float | None) -> Event[object] | None:
    return await ctx.step.wait_for_event("paid", "order.paid", key="A-17", timeout=timeout)


async def test_an_event_comes_at_its_virtual_time() -> None:
    paid = ExternalEvent("order.paid", {"cents": 5}, "A-17", after=7200)
    result = await run_inline(waits_for_payment, 86400.0, events=[paid], now=NOON)
    assert result.elapsed == 7200
    assert result.run.output["time"] == (NOON + timedelta(hours=2)).isoformat()
    assert (await run_inline(waits_for_payment, 3600.0, events=[paid])).output is None


@workflow
async def waits_late(ctx: Context) -> bool:
    await ctx.step.sleep("minutes", minutes=9 if await ctx.step.run("early", lambda: True) else 0)
    first = await ctx.step.wait_for_event("first", "go", timeout=1)
    await ctx.step.sleep("more", minutes=2)
    second = await ctx.step.wait_for_event("second", "go", timeout=1)
    return first is not None and second is None


async def test_an_event_is_remembered_for_ten_minutes() -> None:
    result = await run_inline(waits_late, events=[ExternalEvent("go"), ExternalEvent("go")])
    assert result.output is True


@workflow
async def works_beside_a_sleep(ctx: Context) -> str:
    work = ctx.step.run("work", asyncio.sleep, 0.1)
    return (await ctx.step.race("first", work=work, late=ctx.step.sleep("late", hours=1))).winner


async def test_time_does_not_run_ahead_of_a_step_that_is_at_work() -> None:
    result = await run_inline(works_beside_a_sleep)
    assert (result.output, result.elapsed) == ("work", 0.0)


# ---- replay ----


@workflow
async def counts(ctx: Context) -> int:
    calls["began"] += 1
    try:
        await ctx.step.run("once", lambda: fails(0, ValueError, "once"))
        await ctx.step.sleep("a", 1)
        await ctx.step.sleep("b", 1)
    finally:
        await asyncio.sleep(0.01)
        calls["ended"] += 1
        assert calls["ended"] == calls["began"], "a delivery begins when the one before has ended"
    return ctx.run.delivery


async def test_a_handler_runs_again_from_its_start_after_each_wait() -> None:
    assert (await run_inline(counts)).output == 3
    assert calls == {"began": 3, "ended": 3, "once": 1}


@workflow
async def depends_on_the_delivery(ctx: Context) -> None:
    await (ctx.step.sleep("name", 1) if ctx.run.delivery == 1 else ctx.step.run("name", int))


async def test_a_handler_that_does_not_bear_that_is_found() -> None:
    result = await run_inline(depends_on_the_delivery)
    assert result.failure is not None
    assert result.failure.kind == "non_deterministic"


@workflow
async def swallows(ctx: Context) -> str:
    try:
        await ctx.step.sleep("a", 1)
    except asyncio.CancelledError:
        await asyncio.Event().wait()
    return "done"


async def test_a_handler_that_does_not_end_when_it_is_set_aside_is_left_alone() -> None:
    assert (await asyncio.wait_for(run_inline(swallows), 20)).output == "done"


# ---- results ----


async def test_a_run_that_waits_for_what_does_not_come_says_for_what() -> None:
    result = await run_inline(waits_for_payment, None)
    assert result.status == "waiting"
    assert [(one.kind, one.step_name) for one in result.run.waiting_for] == [("event", "paid")]
    with pytest.raises(TimeoutError, match=r"step 'paid' waits for event order\.paid with key A-17"):
        result.output  # noqa: B018  # it raises


@workflow
async def fails_always(ctx: Context) -> None:
    await ctx.step.run("bad", fails, 9, ValueError("never"))


async def test_a_run_that_has_failed_raises_when_its_output_is_asked_for() -> None:
    result = await run_inline(fails_always)
    assert (result.status, result.attempts, result.step("bad").status) == ("failed", 1, "failed")
    with pytest.raises(RunFailedError, match="ValueError: never") as raised:
        result.output  # noqa: B018  # it raises
    assert raised.value.failure == result.failure
    assert "in fails\n" in str(raised.value) and "redflow run get" not in str(raised.value)
    with pytest.raises(LookupError, match="there are \\['bad'\\]"):
        result.step("good")


@workflow
async def mails(ctx: Context, to: str) -> str:
    await ctx.step.sleep("later", hours=1)
    return f"mailed {to}"


@workflow
async def announces(ctx: Context) -> None:
    await ctx.step.start_workflow("mail", mails, "Ada")
    await ctx.step.emit_event("emit", "order.paid", {"id": 7}, key="7")
    await ctx.step.schedule_event("remind", "order.late", available_at=NOON + timedelta(days=1))


@workflow(events=["order.late"])
async def reminds(ctx: Context, nothing: object) -> None: ...


async def test_it_has_what_the_run_has_started_and_emitted() -> None:
    result = await run_inline(announces, workflows=[reminds], now=NOON)
    assert result.elapsed == 0
    assert [(run.workflow, run.status, run.output, run.finished_at) for run in result.started] == [
        ("mails", "succeeded", "mailed Ada", NOON + timedelta(hours=1)),
        ("reminds", "succeeded", None, NOON + timedelta(days=1)),
    ]
    assert [(event.name, event.payload, event.key, event.time, event.available_at) for event in result.emitted] == [
        ("order.paid", {"id": 7}, "7", NOON, None),
        ("order.late", None, None, NOON, NOON + timedelta(days=1)),
    ]
    assert result.emitted[1].started == (result.started[1].id,)


# ---- around ----


@workflow
async def starts_itself(ctx: Context, number: int) -> None:
    await ctx.step.sleep("day", days=1)
    await ctx.step.start_workflow("next", starts_itself, number + 1)


async def test_what_starts_runs_without_end_is_ended() -> None:
    with pytest.raises(EndlessPlay, match="children="):
        await run_inline(starts_itself, 1)
    result = await run_inline(starts_itself, 1, children={"starts_itself": None})
    assert [(run.input, run.status) for run in result.started] == [(2, "succeeded")]


@workflow
async def works_for_ever(ctx: Context) -> None:
    try:
        await ctx.step.run("work", asyncio.sleep, 3600)
    finally:
        calls["ended"] += 1


async def test_canceling_it_ends_the_handlers() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run_inline(works_for_ever), 0.1)
    assert calls["ended"] == 1


@workflow(run_timeout=0.1)
async def worked_too_long(ctx: Context) -> None:
    await ctx.step.run("work", asyncio.sleep, 3600)


@workflow
async def child_of_a_given_up_wait(ctx: Context) -> str:
    try:
        await ctx.step.run_workflow("child", works_for_ever, timeout=0.1)
    except TimeoutError:
        return "too long"
    return "no"


async def test_a_handler_at_work_is_stopped_when_its_real_time_is_up() -> None:
    result = await run_inline(worked_too_long)
    assert (result.failure and result.failure.type, result.elapsed) == ("RunTimeoutError", 0.1)
    outer = await run_inline(child_of_a_given_up_wait)
    assert (outer.output, [run.status for run in outer.started], calls["ended"]) == ("too long", ["canceled"], 1)
    with pytest.raises(CanceledError, match="no run needs it"):
        outer.__class__(outer.started[0], (), (), (), 0.0, object).output  # noqa: B018  # it raises


async def test_several_may_be_on_at_once() -> None:
    results = await asyncio.gather(*(run_inline(long_sleeps, now=NOON) for _ in range(5)))
    assert {result.elapsed for result in results} == {timedelta(days=31).total_seconds()}


async def test_it_leaves_neither_tasks_nor_threads() -> None:
    tasks = asyncio.all_tasks()
    await run_inline(blocking_tries)
    assert asyncio.all_tasks() == tasks
    names = ("redflow-handler", "redflow-step")
    await eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith(names)])


def test_a_program_without_a_loop_may_use_it() -> None:
    assert asyncio.run(run_inline(long_sleeps, now=NOON)).output == ["first", "last"]
