"""Races: the first of several steps, as the store has it; the others end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from redflow_sdk import ChildFailedError, Context, Raced, TokenFailedError, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import (
    answer,
    child_by_reference,
    child_failed,
    kind_of,
    ok,
    open_wait,
    resolution,
    resolved,
    timed_out,
    value_of,
    wait_over,
    withdrawn,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

KINDS = ("timer", "event", "child", "token")
OUTCOMES = {"timer": None, "event": {"amount": 5}, "child": 7, "token": "yes"}


@workflow(name="races")
async def races(ctx: Context) -> list[Any]:
    token = await ctx.step.token("the token")
    first: Raced[Any] = await ctx.step.race(
        "all",
        timer=ctx.step.sleep("the timer", hours=1),
        event=ctx.step.wait_for_event("the event", "e"),
        child=ctx.step.run_workflow("the child", "other"),
        token=token.result(),
    )
    value = first.value.payload if first.winner == "event" else first.value
    return [first.winner, value]


def making_tokens(item: pb.StepCommand) -> pb.ItemResult:
    return resolved(item, *(open_wait("token", wait.step_name, token="tok") for wait in item.wait.waits))


def won_by(kind: str) -> Callable[[Item], pb.ItemResult]:
    """Whatever races, the step of this kind is over and the others are withdrawn."""

    def answers(item: Item) -> pb.ItemResult:
        if isinstance(item, pb.StepCommand):
            return making_tokens(item)
        if not isinstance(item, pb.Suspension):
            return ok(item)
        steps = [withdrawn(other, f"the {other}") for other in KINDS if other != kind]
        return resolved(item, *steps, wait_over(kind, f"the {kind}", OUTCOMES[kind]))

    return answers


# ---- waits ----


@pytest.mark.parametrize("kind", KINDS)
async def test_waits_of_every_kind_race_as_one_group_and_the_one_that_is_over_has_won(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, races)
    scripted.script.item = won_by(kind)
    token = scripted.assign("races")
    result = await scripted.log.result(token)
    assert value_of(result.output) == [kind, OUTCOMES[kind]] and result.steps_recorded == 1
    [asked] = scripted.log.suspensions(token)
    assert [(wait.step_name, wait.group) for wait in asked.message.waits] == [(f"the {it}", "all") for it in KINDS]
    assert scripted.log.said(token) == ["StepCommand", "Suspension", "RunResult"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_race_on_record_is_decided_the_same_way_without_asking(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, races)
    steps = [withdrawn(other, f"the {other}", token="tok") for other in KINDS if other != kind]
    over = wait_over(kind, f"the {kind}", OUTCOMES[kind], token="tok")
    token = scripted.assign("races", attempt=2, max_attempts=2, steps=[*steps, over])
    assert value_of((await scripted.log.result(token)).output) == [kind, OUTCOMES[kind]]
    assert scripted.log.said(token) == ["RunResult"]


async def test_of_two_that_are_over_on_record_the_first_in_the_store_has_won(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Both may be when there is a function among them."""
    await connect(scripted, races)
    steps = [
        wait_over("timer", "the timer", number=9),
        wait_over("event", "the event", number=8),
        wait_over("token", "the token", "yes", number=7, token="tok"),
        wait_over("child", "the child", 7, number=10),
    ]
    token = scripted.assign("races", steps=steps)
    assert value_of((await scripted.log.result(token)).output) == ["token", "yes"]


async def test_waits_of_a_race_begin_together_while_a_step_is_at_work_although_one_is_open_already(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    @workflow(name="busy")
    async def busy(ctx: Context) -> Any:
        token = await ctx.step.token("the token")
        raced, _ = await asyncio.gather(
            ctx.step.race("r", token=token.result(), timer=ctx.step.sleep("the timer", hours=1)),
            ctx.step.run("slow", go_on.wait),
        )
        return raced.winner

    def answers(item: Item) -> pb.ItemResult:
        if isinstance(item, pb.StepCommand) and len(item.wait.waits) == 1:
            return making_tokens(item)
        return ok(item)

    await connect(scripted, busy)
    scripted.script.item = answers
    token = scripted.assign("busy")
    await eventually(lambda: len(scripted.log.begun(token)) == 3)
    _, together = scripted.log.commands(token)
    assert [(wait.step_name, wait.group) for wait in together.message.wait.waits] == [
        ("the token", "r"),
        ("the timer", "r"),
    ]
    scripted.send(wait_resolutions=[resolution(token, wait_over("timer", "the timer"))])
    go_on.set()
    assert value_of((await scripted.log.result(token)).output) == "timer"


async def test_after_a_race_the_losers_are_waited_for_no_more(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="goes-on")
    async def goes_on(ctx: Context) -> str:
        members = {n: ctx.step.sleep(n, hours=1) for n in ("a", "b", "c")}
        first = await ctx.step.race("r", **members)
        await ctx.step.sleep("after", 1)
        return first.winner

    def answers(item: Item) -> pb.ItemResult | None:
        if not isinstance(item, pb.Suspension):
            return ok(item)
        if len(item.waits) == 3:
            return answer(item, pb.ITEM_STATUS_PARKED)
        return resolved(item, wait_over("timer", "after", number=2))

    await connect(scripted, goes_on)
    scripted.script.item = answers
    token = scripted.assign("goes-on")
    await scripted.log.suspension(token)
    await eventually(lambda: scripted.log.open_waits(token) == ["a", "b", "c"])
    scripted.script.item = lambda item: None if isinstance(item, pb.Suspension) else ok(item)
    scripted.send(wait_resolutions=[resolution(token, wait_over("timer", "b"))])
    asked = await scripted.log.suspension(token, 2)
    assert [wait.step_name for wait in asked.waits] == ["after"]
    await scripted.log.beat()
    assert scripted.log.open_waits(token) == [], "nor are they listed, or the gateway would wake the run for them"
    scripted.answer(resolved(asked, wait_over("timer", "after", number=2)))
    assert value_of((await scripted.log.result(token)).output) == "b"


async def test_a_winner_whose_value_has_to_be_fetched_has_won_all_the_same(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, races)
    large = wait_over("child", "the child", "x" * 1000)
    scripted.script.outputs = lambda request: pb.GetStepOutputsResponse(steps=[large])
    steps = [withdrawn(other, f"the {other}") for other in KINDS if other != "child"]
    over = child_by_reference("the child", 70_000)
    scripted.script.item = lambda item: (
        making_tokens(item)
        if isinstance(item, pb.StepCommand)
        else resolved(item, *steps, over)
        if isinstance(item, pb.Suspension)
        else ok(item)
    )
    token = scripted.assign("races")
    assert value_of((await scripted.log.result(token)).output) == ["child", "x" * 1000]


@pytest.mark.parametrize(
    ("kind", "step", "error"),
    [
        ("child", child_failed("the child"), ChildFailedError),
        ("child", timed_out("child", "the child"), TimeoutError),
        ("token", timed_out("token", "the token"), TimeoutError),
    ],
)
async def test_the_first_one_raises_what_it_raises(
    kind: str, step: pb.StepSnapshot, error: type[Exception], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    raised: list[Exception] = []

    @workflow(name="catches")
    async def catches(ctx: Context) -> None:
        token = await ctx.step.token("the token")
        try:
            await ctx.step.race(
                "r", token=token.result(), child=ctx.step.run_workflow("the child", "other"), c=ctx.step.sleep("c", 9)
            )
        except (ChildFailedError, TokenFailedError, TimeoutError) as caught:
            raised.append(caught)

    await connect(scripted, catches)
    others = [withdrawn("timer", "c"), *(withdrawn(it, f"the {it}") for it in ("child", "token") if it != kind)]
    scripted.script.item = lambda item: (
        making_tokens(item)
        if isinstance(item, pb.StepCommand)
        else resolved(item, step, *others)
        if isinstance(item, pb.Suspension)
        else ok(item)
    )
    assert (await scripted.log.result(scripted.assign("catches"))).HasField("output")
    assert [type(caught) for caught in raised] == [error]


async def test_a_wait_that_has_lost_a_race_cannot_be_waited_for_again(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Its token is no good any more: whoever waits for it has to make another one."""

    @workflow(name="reminds")
    async def reminds(ctx: Context) -> str:
        token = await ctx.step.token("the token")
        for n in range(2):
            await ctx.step.race(f"r{n}", token=token.result(), timer=ctx.step.sleep(f"t{n}", hours=1))
        return "never"

    def answers(item: Item) -> pb.ItemResult:
        if isinstance(item, pb.StepCommand):
            return making_tokens(item)
        if not isinstance(item, pb.Suspension):
            return ok(item)
        timer = item.waits[-1].step_name
        over = wait_over("timer", timer) if timer == "t0" else withdrawn("timer", timer)
        return resolved(item, withdrawn("token", "the token"), over)

    await connect(scripted, reminds)
    scripted.script.item = answers
    token = scripted.assign("reminds", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "non_deterministic" and "'the token' has lost a race before" in failure.message
    assert scripted.log.said(token) == ["StepCommand", "Suspension", "Suspension", "RunResult"]


async def test_races_beside_each_other_are_groups_of_their_own(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="two")
    async def two(ctx: Context) -> list[str]:
        def race(n: int) -> Any:
            members = {which: ctx.step.sleep(f"{which}{n}", hours=1) for which in ("a", "b")}
            return ctx.step.race(f"r{n}", **members)

        return [raced.winner for raced in await asyncio.gather(race(0), race(1))]

    def answers(item: Item) -> pb.ItemResult:
        if not isinstance(item, pb.Suspension):
            return ok(item)
        winner, loser = ("a1", "b1") if len(item.waits) == 4 else ("b0", "a0")
        return resolved(item, wait_over("timer", winner), withdrawn("timer", loser))

    await connect(scripted, two)
    scripted.script.item = answers
    token = scripted.assign("two")
    assert value_of((await scripted.log.result(token)).output) == ["b", "a"]
    first, second = (it.message for it in scripted.log.suspensions(token))
    assert [wait.group for wait in first.waits] == ["r0", "r0", "r1", "r1"]
    assert [wait.step_name for wait in second.waits] == ["a0", "b0"]


# ---- functions ----


async def test_of_functions_the_first_to_be_recorded_has_won_and_the_others_are_canceled(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    ended: list[str] = []
    is_in_thread, may_end = threading.Event(), threading.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slow")

    def in_thread() -> None:
        is_in_thread.set()
        may_end.wait(10)

    async def quick() -> int:
        await eventually(is_in_thread.is_set, every=0.01)
        return 5

    @workflow(name="functions")
    async def functions(ctx: Context) -> list[Any]:
        first = await ctx.step.race(
            "r", slow=ctx.step.run("s", slow), quick=ctx.step.run("q", quick), thread=ctx.step.run("t", in_thread)
        )
        return [first.winner, first.value]

    await connect(scripted, functions)
    token = scripted.assign("functions")
    assert value_of((await scripted.log.result(token)).output) == ["quick", 5]
    may_end.set()
    assert ended == ["slow"]
    won = await scripted.log.report(token, "q")
    assert list(won.rivals) == ["s", "t"], "its success withdraws the others in the store"
    lost = [await scripted.log.report(token, name) for name in ("s", "t")]
    assert [(kind_of(report.failure), report.final, list(report.rivals)) for report in lost] == [
        ("canceled", False, [])
    ] * 2


async def test_a_function_races_against_waits_which_begin_while_it_is_at_work(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="charges")
    async def charges(ctx: Context) -> str:
        first = await ctx.step.race(
            "r", work=ctx.step.run("charge", asyncio.sleep, 60), late=ctx.step.sleep("late", hours=1)
        )
        return first.winner

    await connect(scripted, charges)
    token = scripted.assign("charges")
    [begun] = (await scripted.log.command(token)).wait.waits
    assert (begun.step_name, begun.group) == ("late", "r")
    scripted.send(wait_resolutions=[resolution(token, wait_over("timer", "late"))])
    assert value_of((await scripted.log.result(token)).output) == "late"
    assert scripted.log.said(token) == ["StepCommand", "StepReport", "RunResult"]
    assert kind_of((await scripted.log.report(token, "charge")).failure) == "canceled"


async def test_a_function_that_ends_first_ends_the_wait_of_the_other(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="charges")
    async def charges(ctx: Context) -> list[Any]:
        first = await ctx.step.race("r", work=ctx.step.run("charge", lambda: 5), late=ctx.step.sleep("late", hours=1))
        return [first.winner, first.value]

    await connect(scripted, charges)
    token = scripted.assign("charges")
    assert value_of((await scripted.log.result(token)).output) == ["work", 5]
    assert list((await scripted.log.report(token, "charge")).rivals) == ["late"]
    assert scripted.log.suspensions(token) == []


async def test_a_race_inside_a_gather_takes_nothing_from_its_siblings(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[str] = []

    @workflow(name="mixed")
    async def mixed(ctx: Context) -> list[Any]:
        async def sibling() -> str:
            for name in ("one", "two"):
                await ctx.step.run(name, executed.append, name)
                await ctx.step.sleep(f"after {name}", 1)
            return "sibling"

        raced, other = await asyncio.gather(
            ctx.step.race("r", a=ctx.step.sleep("a", 1), b=ctx.step.run("b", asyncio.sleep, 0.05)), sibling()
        )
        return [raced.winner, other]

    await connect(scripted, mixed)
    scripted.script.item = lambda item: (
        resolved(item, *(wait_over("timer", wait.step_name) for wait in item.waits))
        if isinstance(item, pb.Suspension)
        else ok(item)
    )
    token = scripted.assign("mixed")
    assert value_of((await scripted.log.result(token)).output) == ["b", "sibling"]
    assert executed == ["one", "two"]
