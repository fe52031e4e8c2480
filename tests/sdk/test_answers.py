"""What a worker does with each answer to its items, and with answers that are late or lost."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from redflow_sdk import BlockingContext, Context, RunCanceledError, workflow
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import answer, by_reference, failed, milliseconds, ok, payload, succeeded, value_of, withheld
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item, states_of


@workflow(name="two-steps")
async def two_steps(ctx: Context) -> str:
    return await ctx.step.run("a", lambda: "A") + await ctx.step.run("b", lambda: "B")


def name_of(item: Item) -> str:
    return item.step_name if isinstance(item, pb.StepReport) else ""


def once(status: pb.ItemStatus.ValueType, kind: type[Item], name: str = "", **fields: object):  # noqa: ANN201  # a script
    """Answers the first item of a kind, and step name, with a status; everything else with OK."""
    answered: list[int] = []

    def script(item: Item) -> pb.ItemResult:
        if isinstance(item, kind) and name in ("", name_of(item)) and not answered:
            answered.append(item.request_id)
            return answer(item, status, **fields)
        return ok(item)

    return script


async def test_an_item_that_the_gateway_has_already_is_done(scripted: ScriptedGateway, connect: StartWorker) -> None:
    scripted.script.item = lambda item: answer(item, pb.ITEM_STATUS_DUPLICATE)
    await connect(scripted, two_steps)
    token = scripted.assign("two-steps")
    assert value_of((await scripted.log.result(token)).output) == "AB"
    assert token not in states_of((await scripted.log.beat()).leases)
    assert len(scripted.log.items(token)) == 3


async def test_the_stored_value_counts_when_another_one_is_on_record(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="conflicts")
    async def conflicts(ctx: Context) -> str:
        return await ctx.step.run("first-wins", lambda: "mine")

    await connect(scripted, conflicts)
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_CONFLICT, conflicting_steps=[succeeded("first-wins", "stored")])
        if isinstance(item, pb.StepReport)
        else ok(item)
    )
    token = scripted.assign("conflicts")
    result = await scripted.log.result(token)
    assert value_of(result.output) == "stored"
    assert result.steps_recorded == 1


# ---- the store is away ----


@pytest.mark.parametrize("kind", [pb.StepReport, pb.RunResult])
async def test_an_item_that_could_not_be_stored_is_sent_again_unchanged_and_not_before_the_delay(
    kind: type[Item], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    delay_s = 0.3
    refused = set[str]()

    def away_once(item: Item) -> pb.ItemResult:
        if isinstance(item, kind) and item.lease_token not in refused:
            refused.add(item.lease_token)
            return answer(item, pb.ITEM_STATUS_UNAVAILABLE, retry_delay=milliseconds(delay_s * 1000))
        return ok(item)

    scripted.script.item = away_once
    await connect(scripted, two_steps)
    tokens = [scripted.assign("two-steps") for _ in range(8)]
    for token in tokens:
        await eventually(lambda token=token: len(scripted.log.items(token)) == 4)
        first, again = [item for item in scripted.log.items(token) if isinstance(item.message, kind)][:2]
        assert first.message == again.message
        assert delay_s <= again.at - first.at < 5 * delay_s
        assert value_of(scripted.log.results(token)[-1].message.output) == "AB"


async def test_an_item_is_sent_again_as_often_as_the_store_is_away_and_the_handler_runs_once(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed = Counter[str]()
    answers = Counter[int]()

    @workflow(name="patient")
    async def patient(ctx: Context) -> int:
        executed["handler"] += 1
        return await ctx.step.run("a", lambda: executed.update(["step"]) or 1)

    def away_thrice(item: Item) -> pb.ItemResult:
        answers[item.request_id] += 1
        if answers[item.request_id] <= 3:
            return answer(item, pb.ITEM_STATUS_UNAVAILABLE, retry_delay=milliseconds(20))
        return ok(item)

    scripted.script.item = away_thrice
    await connect(scripted, patient)
    token = scripted.assign("patient")
    await eventually(lambda: len(scripted.log.items(token)) == 8)
    assert executed == {"handler": 1, "step": 1}
    assert list(answers.values()) == [4, 4]


# ---- the answer is lost ----


async def test_an_item_whose_answer_was_lost_is_sent_again_in_the_next_session(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[bool] = []

    @workflow(name="counted")
    async def counted(ctx: Context) -> int:
        return await ctx.step.run("a", lambda: executed.append(True) or 5)

    await connect(scripted, counted)
    scripted.script.item = withheld
    token = scripted.assign("counted")
    await scripted.log.report(token, "a")
    scripted.script.item = lambda item: answer(item, pb.ITEM_STATUS_DUPLICATE)
    scripted.session.cut()

    result = await scripted.log.result(token)
    lost, again = scripted.log.reports(token)
    assert (lost.session, again.session) == (1, 2)
    assert lost.message == again.message
    assert value_of(result.output) == 5 and executed == [True]


async def test_unanswered_items_are_sent_again_in_the_order_in_which_they_were_said(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="parallel")
    async def parallel(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step.run(f"s{n}", asyncio.sleep, 0.005 * n) for n in range(8)))

    await connect(scripted, parallel)
    scripted.script.item = withheld
    tokens = [scripted.assign("parallel") for _ in range(3)]
    await eventually(lambda: len(scripted.log.reports()) == 24)
    scripted.script.item = ok
    scripted.session.cut()
    for token in tokens:
        await scripted.log.result(token)
    ids = [[it.message.request_id for it in scripted.log.reports() if it.session == number] for number in (1, 2)]
    assert ids[1] == ids[0] == sorted(ids[0])


async def test_a_result_whose_answer_was_lost_keeps_its_lease_listed_until_it_is_answered(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="quick")
    async def quick(ctx: Context) -> str:
        return "done"

    await connect(scripted, quick)
    scripted.script.item = withheld
    token = scripted.assign("quick")
    await scripted.log.result(token)
    assert token in states_of((await scripted.log.beat()).leases)
    scripted.script.item = ok
    scripted.session.cut()
    opening = (await scripted.log.open(2)).message
    assert token in states_of(opening.held_leases)
    await eventually(lambda: len(scripted.log.results(token)) == 2)
    assert token not in states_of((await scripted.log.beat()).leases)


# ---- the store has lost steps ----


@pytest.mark.parametrize(("kind", "name"), [(pb.StepReport, "c"), (pb.RunResult, "")])
async def test_when_the_store_has_lost_steps_all_that_the_worker_has_are_reported_again_and_then_the_item(
    kind: type[Item], name: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed = Counter[str]()

    @workflow(name="letters")
    async def letters(ctx: Context) -> str:
        return "".join([await ctx.step.run(x, lambda x=x: executed.update(x) or x.upper()) for x in "oabc"])

    await connect(scripted, letters)
    scripted.script.item = once(pb.ITEM_STATUS_STEPS_MISSING, kind, name)
    token = scripted.assign("letters", steps=[succeeded("o", "O")])
    await eventually(lambda: len(scripted.log.results(token)) == (2 if kind is pb.RunResult else 1))

    said = [item.message for item in scripted.log.items(token)]
    refused = next(n for n, item in enumerate(said) if isinstance(item, kind) and name_of(item) == name)
    earlier = [item for item in said[:refused] if isinstance(item, pb.StepReport)]
    known = [("o", payload("O"), 1), *((it.step_name, it.output, it.step_seq) for it in earlier)]
    repeated = said[refused + 1 : refused + 1 + len(known)]
    assert [(it.step_name, it.output, it.step_seq) for it in repeated] == known
    assert said[refused + 1 + len(known)] == said[refused]
    result = scripted.log.results(token)[-1].message
    assert (value_of(result.output), result.steps_recorded) == ("OABC", 4)
    assert executed == dict.fromkeys("abc", 1)


async def test_reports_that_repeat_lost_steps_ask_for_no_steps_before_them(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Otherwise a store that has lost the first of them would refuse each of them for ever."""
    on_record: set[str] = set()
    has_lost = False

    def loses_everything_once(item: Item) -> pb.ItemResult:
        nonlocal has_lost
        if isinstance(item, pb.RunResult) and not has_lost:
            has_lost = True
            on_record.clear()
        if item.steps_recorded > len(on_record):
            return answer(item, pb.ITEM_STATUS_STEPS_MISSING)
        if isinstance(item, pb.StepReport):
            on_record.add(item.step_name)
        return ok(item)

    scripted.script.item = loses_everything_once
    await connect(scripted, two_steps)
    token = scripted.assign("two-steps")
    await eventually(lambda: len(scripted.log.results(token)) == 2)
    assert on_record == {"a", "b"}
    assert token not in states_of((await scripted.log.beat()).leases)


async def test_failed_steps_of_an_earlier_attempt_are_told_again_as_to_be_run_again(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    scripted.script.item = once(pb.ITEM_STATUS_STEPS_MISSING, pb.RunResult)
    await connect(scripted, two_steps)
    token = scripted.assign("two-steps", steps=[failed("a", "error", "x")], attempt=2, max_attempts=3)
    await eventually(lambda: len(scripted.log.results(token)) == 2)
    told = [it.message for it in scripted.log.reports(token)][2:]
    assert [(it.step_name, it.status, it.final) for it in told] == [
        ("a", run_pb2.STEP_STATUS_FAILED, False),
        ("a", run_pb2.STEP_STATUS_SUCCEEDED, False),
        ("b", run_pb2.STEP_STATUS_SUCCEEDED, False),
    ]


async def test_steps_that_were_too_large_for_the_assignment_are_fetched_to_be_told_again(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    scripted.script.item = once(pb.ITEM_STATUS_STEPS_MISSING, pb.RunResult)
    scripted.script.outputs = lambda request: pb.GetStepOutputsResponse(steps=[succeeded("a", "A")])
    await connect(scripted, two_steps)
    token = scripted.assign("two-steps", steps=[by_reference("a", 3)])
    await eventually(lambda: len(scripted.log.results(token)) == 2)
    assert [value_of(it.message.output) for it in scripted.log.reports(token)] == ["B", "A", "B"]


async def test_an_item_that_the_store_refuses_for_lost_steps_again_and_again_is_no_storm(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:

    def misses_steps(item: Item) -> pb.ItemResult:
        return answer(item, pb.ITEM_STATUS_STEPS_MISSING) if item.steps_recorded else ok(item)

    scripted.script.item = misses_steps
    await connect(scripted, two_steps)
    token = scripted.assign("two-steps", steps=[succeeded("a", "A")])
    await scripted.log.report(token, "b")
    for _ in range(3):
        await scripted.log.beat()
    assert len(scripted.log.items(token)) <= 20


# ---- the lease is lost ----


@pytest.mark.parametrize("status", [pb.ITEM_STATUS_LEASE_LOST, pb.ITEM_STATUS_MOVED])
async def test_a_lost_lease_stops_its_handler_and_no_other_and_nothing_more_is_said_for_it(
    status: pb.ItemStatus.ValueType, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    ended: list[str] = []
    released = asyncio.Event()

    @workflow(name="reports")
    async def reports(ctx: Context, name: str) -> str:
        try:
            await released.wait()
            await ctx.step.run("a", lambda: name)
            await ctx.step.run("b", lambda: name)
        finally:
            ended.append(name)
        return name

    await connect(scripted, reports)
    doomed, sound = scripted.assign("reports", payload("doomed")), scripted.assign("reports", payload("sound"))
    scripted.script.item = lambda item: answer(item, status) if item.lease_token == doomed else ok(item)
    await scripted.log.ack(sound)
    released.set()

    assert value_of((await scripted.log.result(sound)).output) == "sound"
    await eventually(lambda: sorted(ended) == ["doomed", "sound"])
    beat = await scripted.log.beat()
    assert doomed not in states_of(beat.leases)
    assert [type(item.message).__name__ for item in scripted.log.items(doomed)] == ["StepReport"]
    assert len(scripted.sessions) == 1


async def test_a_lost_lease_ends_all_parallel_steps_of_its_run(scripted: ScriptedGateway, connect: StartWorker) -> None:
    ended = Counter[str]()

    async def endless(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended[name] += 1

    @workflow(name="parallel")
    async def parallel(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for name in ("x", "y"):
                group.create_task(ctx.step.run(name, endless, name))
            await ctx.step.run("a", lambda: None)
            await ctx.step.run("never", lambda: ended.update(["never"]))

    await connect(scripted, parallel)
    scripted.script.item = lambda item: answer(item, pb.ITEM_STATUS_LEASE_LOST)
    token = scripted.assign("parallel")
    await eventually(lambda: ended == {"x": 1, "y": 1})
    await scripted.log.beat()
    assert [item.message.step_name for item in scripted.log.reports(token)] == ["a"]
    assert scripted.log.results(token) == []


async def test_a_handler_in_a_thread_that_lost_its_lease_sees_it_at_its_step_and_says_nothing_more(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    raised: list[BaseException] = []
    ended = threading.Event()

    @workflow(name="in-a-thread")
    def in_a_thread(ctx: BlockingContext) -> None:
        try:
            ctx.step.run("a", lambda: 1)
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            ended.set()

    await connect(scripted, in_a_thread)
    scripted.script.item = lambda item: answer(item, pb.ITEM_STATUS_LEASE_LOST)
    token = scripted.assign("in-a-thread")
    await eventually(ended.is_set)
    await scripted.log.beat()
    assert [type(error) for error in raised] == [RunCanceledError]
    assert len(scripted.log.items(token)) == 1


async def test_a_lease_that_a_heartbeat_reply_calls_lost_stops_its_handler(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    ended = asyncio.Event()

    @workflow(name="waits")
    async def waits(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await connect(scripted, waits)
    token = scripted.assign("waits")
    await scripted.log.ack(token)
    scripted.script.beat = lambda beat: pb.HeartbeatReply(sequence=beat.sequence, lost_lease_tokens=[token])
    await asyncio.wait_for(ended.wait(), 2)
    await scripted.log.beat()
    await scripted.log.beat()
    assert scripted.log.items(token) == []
    assert token not in scripted.log.held()
