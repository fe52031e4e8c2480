"""Who was first in a race: what is on record says so, and a replay comes to the same, whatever arrives when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redflow_sdk import Context, RetryPolicy, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import (
    answer,
    failed,
    kind_of,
    ok,
    open_wait,
    resolution,
    resolved,
    succeeded,
    value_of,
    wait_over,
    withdrawn,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

executed: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    executed.clear()


def breaks() -> None:
    executed.append("a")
    raise LookupError("a is broken")


async def works() -> str:
    executed.append("b")
    return "b"


@workflow(name="races")
async def races(ctx: Context) -> str:
    """A function that fails, one that works, and a sleep."""
    try:
        first = await ctx.step.race(
            "r", works=ctx.step.run("b", works), breaks=ctx.step.run("a", breaks), late=ctx.step.sleep("late", hours=1)
        )
    except LookupError as error:
        return str(error)
    return first.winner


def numbered(step: pb.StepSnapshot, number: int) -> pb.StepSnapshot:
    step.resolved_seq = number
    return step


# ---- on record ----

BROKEN = failed("a", "LookupError", "a is broken")
WORKED = succeeded("b", "b", seq=2)
SLEPT = wait_over("timer", "late")
BY_WHAT_IS_FIRST = {"a is broken": BROKEN, "works": WORKED, "late": SLEPT}


@pytest.mark.parametrize("first", BY_WHAT_IS_FIRST)
async def test_a_race_on_record_goes_to_the_first_in_the_store_and_calls_no_function(
    first: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    steps = [numbered(pb.StepSnapshot.FromString(it.SerializeToString()), 2) for it in BY_WHAT_IS_FIRST.values()]
    winner = BY_WHAT_IS_FIRST[first].step_name
    for step in steps:
        step.resolved_seq = 1 if step.step_name == winner else 2
    await connect(scripted, races)
    token = scripted.assign("races", steps=steps)
    assert value_of((await scripted.log.result(token)).output) == first
    assert executed == [] and scripted.log.said(token) == ["RunResult"]


async def test_one_function_on_record_decides_a_race_without_calling_another_or_beginning_a_wait(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, races)
    token = scripted.assign("races", steps=[numbered(succeeded("b", "b"), 1), withdrawn("timer", "late")])
    assert value_of((await scripted.log.result(token)).output) == "works"
    assert executed == [] and scripted.log.said(token) == ["RunResult"]


async def test_a_function_that_failed_in_an_attempt_before_runs_again_and_decides_nothing(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, races)
    step = numbered(failed("a", "LookupError", "old", attempt=1), 1)
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_OK, resolutions=[step])
        if isinstance(item, pb.StepReport) and item.step_name == "b"
        else None
        if isinstance(item, pb.StepReport)
        else ok(item)
    )
    token = scripted.assign("races", attempt=2, max_attempts=2, steps=[step])
    report = await scripted.log.report(token, "a")
    assert executed == ["b", "a"]
    scripted.answer(answer(report, pb.ITEM_STATUS_OK, resolutions=[numbered(succeeded("b", "b"), 2)]))
    assert value_of((await scripted.log.result(token)).output) == "works"


# ---- while it goes on ----


async def test_the_end_of_a_function_is_reported_with_its_rivals_whether_it_failed_or_not(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, races)
    token = scripted.assign("races")
    await scripted.log.result(token)
    assert sorted((await scripted.log.report(token, "a")).rivals) == ["b", "late"]
    assert sorted((await scripted.log.report(token, "b")).rivals) == ["a", "late"]


@pytest.mark.parametrize("first", ["a", "b"])
async def test_of_two_functions_that_end_together_the_first_on_record_has_won(
    first: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Both answers come in one message: what was on record before is told to the second."""
    on_record = numbered(BROKEN if first == "a" else WORKED, 1)
    await connect(scripted, races)
    scripted.script.item = lambda item: None if isinstance(item, pb.StepReport) else ok(item)
    token = scripted.assign("races")
    reports = [await scripted.log.report(token, name) for name in ("b", "a")]
    results = [
        ok(report)
        if report.step_name == first
        else answer(report, pb.ITEM_STATUS_OK, resolutions=[pb.StepSnapshot.FromString(on_record.SerializeToString())])
        for report in reports
    ]
    scripted.send(item_results=results)
    output = value_of((await scripted.log.result(token)).output)
    assert output == ("a is broken" if first == "a" else "works")


async def test_a_wait_that_was_over_before_a_function_has_won_although_that_is_heard_of_with_its_answer(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="two")
    async def two(ctx: Context) -> str:
        first = await ctx.step.race("r", work=ctx.step.run("b", works), late=ctx.step.sleep("late", hours=1))
        return first.winner

    await connect(scripted, two)
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_OK, resolutions=[wait_over("timer", "late")])
        if isinstance(item, pb.StepReport)
        else ok(item)
    )
    assert value_of((await scripted.log.result(scripted.assign("two"))).output) == "late"


@workflow(name="function-or-event")
async def function_or_event(ctx: Context) -> str:
    first = await ctx.step.race("r", work=ctx.step.run("b", works), event=ctx.step.wait_for_event("e", "paid"))
    return first.winner


async def test_a_wait_does_not_begin_any_more_once_a_function_of_its_race_has_ended(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, function_or_event)
    scripted.script.item = lambda item: None if isinstance(item, pb.StepReport) else ok(item)
    token = scripted.assign("function-or-event")
    report = await scripted.log.report(token, "b")
    await scripted.log.beat()
    assert scripted.log.said(token) == ["StepReport"], "the store has withdrawn what was open; this would stay"
    scripted.answer(ok(report))
    assert value_of((await scripted.log.result(token)).output) == "work"
    assert scripted.log.said(token) == ["StepReport", "RunResult"]


async def test_a_wait_of_a_delivery_before_that_was_over_before_a_function_that_ends_at_once_has_won(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, function_or_event)
    over = wait_over("event", "e")
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_OK, resolutions=[over]) if isinstance(item, pb.StepReport) else ok(item)
    )
    token = scripted.assign("function-or-event", steps=[open_wait("event", "e")])
    assert value_of((await scripted.log.result(token)).output) == "event"


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_function_whose_report_is_under_way_when_a_wait_is_over_may_have_been_first(
    is_before: bool, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="two")
    async def two(ctx: Context) -> str:
        try:
            first = await ctx.step.race("r", breaks=ctx.step.run("a", breaks), late=ctx.step.sleep("late", hours=1))
        except LookupError:
            return "breaks"
        return first.winner

    await connect(scripted, two)
    scripted.script.item = lambda item: None if isinstance(item, pb.StepReport) else ok(item)
    token = scripted.assign("two")
    report = await scripted.log.report(token, "a")
    over = wait_over("timer", "late", number=2 if is_before else 1)
    scripted.send(wait_resolutions=[resolution(token, over)])
    await scripted.log.beat()
    await scripted.log.beat()
    assert scripted.log.results(token) == [], "who was first is not known yet"
    scripted.answer(answer(report, pb.ITEM_STATUS_OK, resolutions=[] if is_before else [over]))
    assert value_of((await scripted.log.result(token)).output) == ("breaks" if is_before else "late")


async def test_a_try_that_is_to_be_repeated_decides_nothing(scripted: ScriptedGateway, connect: StartWorker) -> None:
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(len(tries) + 1)
        if len(tries) < 3:
            raise ConnectionError
        return "at last"

    @workflow(name="retries")
    async def retries(ctx: Context) -> list[Any]:
        policy = RetryPolicy(max_attempts=5, initial=0.01, jitter=0)
        first = await ctx.step.race(
            "r", work=ctx.step.run("flaky", flaky, retry=policy), other=ctx.step.run("other", asyncio.sleep, 60)
        )
        return [first.winner, first.value]

    await connect(scripted, retries)
    token = scripted.assign("retries")
    assert value_of((await scripted.log.result(token)).output) == ["work", "at last"]
    reports = [it.message for it in scripted.log.reports(token, "flaky")]
    assert [(report.final, list(report.rivals)) for report in reports] == [
        (False, []),
        (False, []),
        (False, ["other"]),
    ]


async def test_a_rival_that_is_to_be_tried_again_was_not_before_a_function(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """The store has its last failure on record, and tells of it."""
    await connect(scripted, races)
    rival = failed("a", "LookupError", "again", is_final=False)
    scripted.script.item = lambda item: (
        None
        if isinstance(item, pb.StepReport) and item.step_name == "a"
        else answer(item, pb.ITEM_STATUS_OK, resolutions=[rival])
        if isinstance(item, pb.StepReport)
        else ok(item)
    )
    token = scripted.assign("races")
    report = await scripted.log.report(token, "a")
    scripted.answer(answer(report, pb.ITEM_STATUS_OK, resolutions=[numbered(succeeded("b", "b"), 1)]))
    assert value_of((await scripted.log.result(token)).output) == "works"


@pytest.mark.parametrize("delay", [0.05, 600.0])
async def test_a_race_that_is_won_ends_the_pause_of_a_rival(
    delay: float, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="retries")
    async def retries(ctx: Context) -> str:
        policy = RetryPolicy(max_attempts=50, initial=delay, maximum=delay, jitter=0)
        first = await ctx.step.race(
            "r", work=ctx.step.run("a", breaks, retry=policy), late=ctx.step.sleep("late", hours=1)
        )
        return first.winner

    await connect(scripted, retries)
    scripted.script.item = lambda item: None if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("retries")
    await scripted.log.report(token, "a")
    if delay > 1:
        paused = (await scripted.log.suspension(token)).waits
        assert sorted((wait.step_name, wait.group) for wait in paused) == [("a (before try 2)", ""), ("late", "r")]
    scripted.send(wait_resolutions=[resolution(token, wait_over("timer", "late"))])
    if delay > 1:
        scripted.answer(answer((await scripted.log.suspension(token)), pb.ITEM_STATUS_PARKED))
    await eventually(lambda: scripted.log.results(token))
    assert value_of((await scripted.log.result(token)).output) == "late"
    assert all(kind_of(it.message.failure) in ("error", "canceled") for it in scripted.log.reports(token, "a"))


# ---- tokens, which may be completed before they race ----


@workflow(name="tokens")
async def tokens(ctx: Context) -> str:
    made = [await ctx.step.token(name) for name in ("t0", "t1")]
    await ctx.step.run("ask", asyncio.sleep, 0)
    first = await ctx.step.race("r", t0=made[0].result(), t1=made[1].result())
    return f"{first.winner} {first.value}"


def completed(name: str, number: int) -> pb.StepSnapshot:
    return wait_over("token", name, "yes", number=number, token=f"token of {name}")


def making_tokens(item: Item) -> pb.ItemResult | None:
    """Makes tokens; the answer to what is asked beyond that is withheld."""
    if isinstance(item, pb.StepCommand) and not item.wait.waits[0].group:
        return resolved(
            item, *(open_wait("token", it.step_name, token=f"token of {it.step_name}") for it in item.wait.waits)
        )
    return None if isinstance(item, pb.StepReport | pb.Suspension) else ok(item)


@pytest.mark.parametrize("first", ["t0", "t1"])
async def test_tokens_that_were_completed_before_they_race_are_not_asked_for(
    first: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, tokens)
    scripted.script.item = making_tokens
    token = scripted.assign("tokens")
    report = await scripted.log.report(token, "ask")
    for number, name in enumerate((first, "t1" if first == "t0" else "t0")):
        scripted.send(wait_resolutions=[resolution(token, completed(name, number + 1))])
    scripted.answer(ok(report))
    assert value_of((await scripted.log.result(token)).output) == f"{first} yes"
    assert scripted.log.suspensions(token) == []


async def test_of_tokens_that_race_one_may_have_been_completed_before_that_was_told(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """The first message of it was lost, and the other one is completed before the gateway hears of the race."""
    await connect(scripted, tokens)
    scripted.script.item = making_tokens
    token = scripted.assign("tokens")
    scripted.answer(ok(await scripted.log.report(token, "ask")))
    asked = await scripted.log.suspension(token)
    scripted.send(wait_resolutions=[resolution(token, completed("t1", 2))])
    for _ in range(2):
        await scripted.log.beat()
    assert scripted.log.results(token) == [], "who was first is not known yet"
    scripted.answer(resolved(asked, completed("t0", 1), completed("t1", 2)))
    assert value_of((await scripted.log.result(token)).output) == "t0 yes"


async def test_an_end_that_is_told_while_the_gateway_is_asked_counts_when_it_has_answered_that_none_was_over(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, tokens)
    scripted.script.item = making_tokens
    token = scripted.assign("tokens")
    scripted.answer(ok(await scripted.log.report(token, "ask")))
    asked = await scripted.log.suspension(token)
    scripted.send(wait_resolutions=[resolution(token, completed("t1", 1))])
    scripted.answer(answer(asked, pb.ITEM_STATUS_PARKED))
    assert value_of((await scripted.log.result(token)).output) == "t1 yes"


async def test_members_may_come_to_their_steps_one_by_one_and_what_ended_meanwhile_counts_for_all(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    come = asyncio.Event()

    @workflow(name="slowly")
    async def slowly(ctx: Context) -> str:
        made = [await ctx.step.token(name) for name in ("t0", "t1")]

        async def later() -> Any:
            await come.wait()  # nothing that the SDK knows of
            return await made[1].result()

        first = await ctx.step.race("r", t0=made[0].result(), t1=later(), a=ctx.step.run("a", breaks))
        return f"{first.winner} {first.value}"

    await connect(scripted, slowly)
    scripted.script.item = making_tokens
    token = scripted.assign("slowly")
    await eventually(lambda: scripted.log.open_waits(token) == ["t0", "t1"])
    for number, name in enumerate(("t0", "t1")):
        scripted.send(wait_resolutions=[resolution(token, completed(name, number + 1))])
    await eventually(lambda: scripted.log.open_waits(token) == [])
    come.set()
    assert value_of((await scripted.log.result(token)).output) == "t0 yes"
    assert executed == []
