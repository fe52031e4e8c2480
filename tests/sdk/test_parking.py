"""Parking: a handler that waits stays in memory, without a slot, and goes on where it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, InvalidInputError, Worker, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import child_open, ok, parked, resolution, resolved, value_of, wait_over
from tests.sdk.parked_runs import parked_run, parking, quick, resolve, takes_the_next_run, waiting
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item, states_of

BOTH = pytest.mark.parametrize("kind", ["async", "def"])


@pytest.fixture
def noted() -> list[str]:
    return []


# ---- going on ----


@BOTH
async def test_a_parked_handler_goes_on_where_it_is_when_its_wait_is_over(
    kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted))
    scripted.script.item = parking
    token = await parked_run(scripted, f"waits-{kind}")
    [asked] = scripted.log.suspensions(token)
    assert asked.message.park and [wait.step_name for wait in asked.message.waits] == ["child"]
    assert noted == ["begun"]
    resolve(scripted, token, 41)
    result = await scripted.log.result(token)
    assert value_of(result.output) == 41 and result.steps_recorded == 2
    assert (await scripted.log.report(token, "after")).steps_recorded == 1
    assert noted == ["begun", "went on"], "it began once"
    assert scripted.log.said(token) == ["Suspension", "StepReport", "RunResult"]


@BOTH
async def test_a_handler_parks_once_more_at_every_wait(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    begun: list[bool] = []

    @workflow(name="thrice-async")
    async def thrice(ctx: Context) -> list[Any]:
        begun.append(True)
        return [await ctx.step.run_workflow(f"c{n}", "other") for n in range(3)]

    @workflow(name="thrice-def")
    def thrice_blocking(ctx: BlockingContext) -> list[Any]:
        begun.append(True)
        return [ctx.step.run_workflow(f"c{n}", "other") for n in range(3)]

    await connect(scripted, thrice, thrice_blocking)
    scripted.script.item = parking
    token = scripted.assign(f"thrice-{kind}")
    for n in range(3):
        await scripted.log.suspension(token, n + 1)
        await eventually(lambda: scripted.log.open_waits(token) == [f"c{n}"])  # noqa: B023  # awaited right here
        resolve(scripted, token, n, f"c{n}")
    assert value_of((await scripted.log.result(token)).output) == [0, 1, 2]
    assert begun == [True] and [it.message.park for it in scripted.log.suspensions(token)] == [True] * 3


async def test_of_several_waits_the_one_that_is_over_goes_on_and_the_rest_parks_again(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[str] = []

    @workflow(name="many")
    async def many(ctx: Context) -> list[Any]:
        async def branch(n: int) -> Any:
            value = await ctx.step.run_workflow(f"c{n}", "other")
            await ctx.step.run(f"s{n}", executed.append, f"s{n}")
            return value

        return list(await asyncio.gather(*(branch(n) for n in range(3))))

    await connect(scripted, many)
    scripted.script.item = parking
    token = await parked_run(scripted, "many")
    for n, left in ((1, ["c0", "c2"]), (2, ["c0"])):
        resolve(scripted, token, n, f"c{n}")
        await eventually(lambda: scripted.log.open_waits(token) == left)  # noqa: B023  # awaited right here
        await eventually(lambda: scripted.log.held() == {token: "PARKED"})
    resolve(scripted, token, 0, "c0")
    assert value_of((await scripted.log.result(token)).output) == [0, 1, 2]
    assert executed == ["s1", "s2", "s0"]
    asked = [[wait.step_name for wait in it.message.waits] for it in scripted.log.suspensions(token)]
    assert asked == [["c0", "c1", "c2"], ["c0", "c2"], ["c0"]]


async def test_waits_that_are_over_together_go_on_in_the_order_of_the_store(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    order: list[int] = []

    @workflow(name="many")
    async def many(ctx: Context) -> None:
        async def branch(n: int) -> None:
            await ctx.step.run_workflow(f"c{n}", "other")
            order.append(n)

        await asyncio.gather(*(branch(n) for n in range(4)))

    await connect(scripted, many)
    scripted.script.item = parking
    token = await parked_run(scripted, "many")
    ended = [resolution(token, wait_over("child", f"c{n}", 0, number=at + 1)) for at, n in enumerate((2, 0, 3, 1))]
    scripted.send(wait_resolutions=ended)
    await scripted.log.result(token)
    assert order == [2, 0, 3, 1]


async def test_a_handler_that_is_told_at_once_that_its_wait_is_over_does_not_park(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted))
    over = wait_over("child", "child", 5)
    scripted.script.item = lambda item: resolved(item, over) if isinstance(item, pb.Suspension) else ok(item)
    assert value_of((await scripted.log.result(scripted.assign("waits-async"))).output) == 5
    assert noted == ["begun", "went on"]


# ---- what the gateway hears ----


async def test_heartbeats_and_new_sessions_say_that_it_is_parked_and_what_it_waits_for(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted))
    scripted.script.item = parking
    token = await parked_run(scripted, "waits-async")
    assert scripted.log.open_waits(token) == ["child"]
    scripted.session.cut()
    opening = (await scripted.log.open(2)).message
    assert states_of(opening.held_leases) == {token: "PARKED"}
    assert list(opening.held_leases[0].open_waits) == ["child"]
    resolve(scripted, token)
    assert (await scripted.log.result(token)).HasField("output")
    await scripted.log.beat()
    assert scripted.log.held() == {}


async def test_it_is_at_work_again_from_the_moment_it_is_told(scripted: ScriptedGateway, connect: StartWorker) -> None:
    go_on = asyncio.Event()

    @workflow(name="busy")
    async def busy(ctx: Context) -> None:
        await ctx.step.run_workflow("child", "other")
        await go_on.wait()

    await connect(scripted, busy)
    scripted.script.item = parking
    token = await parked_run(scripted, "busy")
    resolve(scripted, token)
    await eventually(lambda: scripted.log.held() == {token: "RUNNING"})
    assert scripted.log.open_waits(token) == []
    go_on.set()
    await scripted.log.result(token)


async def test_waits_that_were_open_before_the_delivery_are_listed_although_it_has_not_come_to_them(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """So their end is told again when the first message of it was lost."""
    go_on = asyncio.Event()

    @workflow(name="busy")
    async def busy(ctx: Context) -> Any:
        await ctx.step.run("slow", go_on.wait)
        return await ctx.step.run_workflow("child", "other")

    await connect(scripted, busy)
    over = wait_over("child", "child", 5)
    scripted.script.item = lambda item: resolved(item, over) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("busy", steps=[child_open("child")])
    await eventually(lambda: scripted.log.open_waits(token) == ["child"])
    assert scripted.log.held() == {token: "RUNNING"}
    scripted.send(wait_resolutions=[resolution(token, over)])
    await eventually(lambda: scripted.log.open_waits(token) == [])
    go_on.set()
    assert value_of((await scripted.log.result(token)).output) == 5


# ---- slots ----


@BOTH
async def test_a_parked_handler_takes_up_no_slot(
    kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), quick, concurrency=1)
    scripted.script.item = parking
    tokens = [await parked_run(scripted, f"waits-{kind}") for _ in range(5)]
    assert await takes_the_next_run(scripted)
    assert scripted.log.held() == dict.fromkeys(tokens, "PARKED")
    for token in tokens:
        resolve(scripted, token)
        assert (await scripted.log.result(token)).HasField("output")
    assert [ack.message.reject_reason for ack in scripted.log.acks()] == [0] * 6


@BOTH
async def test_one_that_has_gone_on_takes_up_its_slot_again(
    kind: str, scripted: ScriptedGateway, connect: StartWorker, released: Any
) -> None:
    @workflow(name="busy-async")
    async def busy(ctx: Context) -> None:
        await ctx.step.run_workflow("child", "other")
        await ctx.step.run("slow", released.wait, 10)

    @workflow(name="busy-def")
    def busy_blocking(ctx: BlockingContext) -> None:
        ctx.step.run_workflow("child", "other")
        ctx.step.run("slow", released.wait, 10)

    await connect(scripted, busy, busy_blocking, quick, concurrency=1)
    scripted.script.item = parking
    token = await parked_run(scripted, f"busy-{kind}")
    resolve(scripted, token)
    await eventually(lambda: scripted.log.held() == {token: "RUNNING"})
    ack = await scripted.log.ack(scripted.assign("quick"))
    assert ack.reject_reason == pb.REJECT_REASON_OVERLOADED
    released.set()
    await scripted.log.result(token)


# ---- how many, and whether at all ----


@pytest.mark.parametrize("settings", [{"park_window": 0}, {"max_parked": 0}], ids=["no window", "no room"])
async def test_a_worker_that_does_not_park_asks_to_be_set_aside(
    settings: dict[str, Any], noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), **settings)
    scripted.script.item = parking
    token = scripted.assign("waits-async")
    assert not (await scripted.log.suspension(token)).park
    await eventually(lambda: noted == ["begun", "CancelledError"])


async def test_of_more_than_it_keeps_the_rest_is_set_aside(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), max_parked=2)
    scripted.script.item = parking
    first, second = [await parked_run(scripted, "waits-async") for _ in range(2)]
    third = scripted.assign("waits-async")
    assert not (await scripted.log.suspension(third)).park
    resolve(scripted, first)
    await scripted.log.result(first)
    fourth = await parked_run(scripted, "waits-async")
    assert (await scripted.log.suspension(fourth)).park, "there is room again"
    await eventually(lambda: scripted.log.held() == {second: "PARKED", fourth: "PARKED"})


@pytest.mark.parametrize("end", ["not parked", "canceled while it asks", "overtaken", "lost"])
async def test_room_that_was_taken_is_given_back_however_it_ends(
    end: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    def answers(item: Item) -> pb.ItemResult | None:
        if not isinstance(item, pb.Suspension):
            return ok(item)
        return resolved(item, wait_over("child", "child", 1)) if end == "not parked" else None

    await connect(scripted, *waiting(noted), max_parked=1)
    for _ in range(3):
        scripted.script.item = answers
        token = scripted.assign("waits-async")
        asked = await scripted.log.suspension(token)
        if end == "canceled while it asks":
            scripted.send(cancellations=[pb.Cancellation(lease_token=token, reason=pb.CANCELLATION_REASON_USER)])
            await scripted.log.result(token)
            scripted.answer(parked(asked))
        elif end == "overtaken":
            resolve(scripted, token)
            scripted.answer(parked(asked))
        elif end == "lost":
            scripted.answer(pb.ItemResult(request_id=asked.request_id, status=pb.ITEM_STATUS_LEASE_LOST))
        await eventually(lambda: noted[-1:] in (["went on"], ["CancelledError"]))
        noted.clear()
    scripted.script.item = parking
    await parked_run(scripted, "waits-async")


@pytest.mark.parametrize(
    "settings",
    [{"park_window": -1}, {"park_window": "long"}, {"max_parked": -1}, {"max_parked": 1.5}, {"max_parked": 10_001}],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        Worker(workflows=[quick], **settings)
