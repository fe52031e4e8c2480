"""Opening a session, and taking runs: what a worker says first, what it accepts, and what it refuses."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import pytest

from redflow_sdk import BlockingContext, Context, RetryPolicy, workflow
from redflow_sdk.proto.v1 import workflow_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import cancellation, payload, value_of
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import states_of

ACCEPTED = pb.REJECT_REASON_UNSPECIFIED


@workflow(name="double")
async def double(ctx: Context, n: int) -> int:
    return 2 * n


async def runs_double(gateway: ScriptedGateway) -> bool:
    """Whether a worker that serves `double` takes the next run."""
    result = await gateway.log.result(gateway.assign("double", payload(21)))
    return bool(value_of(result.output) == 42)


# ---- opening ----


async def test_the_first_message_is_the_opening_and_it_comes_once(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, double)
    assert await runs_double(scripted)
    await scripted.log.beat()

    first, *rest = scripted.log.requests
    assert [field.name for field, _ in first.message.ListFields()] == ["open"]
    assert not any(later.message.HasField("open") for later in rest)


async def test_the_opening_says_who_the_worker_is_and_what_it_does(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(
        name="charge",
        queue="money",
        retry=RetryPolicy(max_attempts=4, initial=0.5, multiplier=3.0, maximum=20.0, jitter=0.2),
        events=["order.created"],
        run_timeout=90.0,
        start_timeout=30.0,
    )
    async def charge(ctx: Context) -> None: ...

    await connect(scripted, charge, queues=["money", "other"], concurrency=7, owner="billing", name="w-1", build_id="b")

    opening = scripted.log.opens()[0].message
    assert opening.min_revision <= 1 <= opening.max_revision
    assert (opening.owner, opening.worker_name, opening.build_id) == ("billing", "w-1", "b")
    assert (list(opening.queues), opening.slot_limit, opening.session_number) == (["money", "other"], 7, 1)
    assert opening.instance_id and opening.sdk.language == "python" and not opening.held_leases
    [definition] = opening.workflows
    assert (definition.name, definition.queue, definition.max_attempts) == ("charge", "money", 4)
    policy = definition.retry_policy
    assert (policy.initial_interval.ToMilliseconds(), policy.maximum_interval.ToMilliseconds()) == (500, 20_000)
    assert (policy.backoff_multiplier, policy.jitter_ratio) == (3.0, 0.2)
    assert (definition.run_timeout.ToSeconds(), definition.start_timeout.ToSeconds()) == (90, 30)
    assert [trigger.event_name for trigger in definition.event_triggers] == ["order.created"]


async def test_each_start_of_a_worker_is_an_instance_of_its_own(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, double)
    await connect(scripted, double)
    assert len({opening.message.instance_id for opening in scripted.log.opens()}) == 2


async def test_a_definition_that_the_gateway_refuses_is_named_and_the_others_are_served(
    scripted: ScriptedGateway, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow(name="ill-defined")
    async def ill_defined(ctx: Context) -> None: ...

    def open_and_refuse(opening: pb.OpenSession) -> pb.SessionResponse:
        opened = scripted.opened(opening)
        opened.registration_results.add(
            name="ill-defined",
            status=workflow_pb2.REGISTRATION_STATUS_INVALID,
            reason="INVALID_INPUT",
            message="its cron expression has no next time",
        )
        opened.registration_results.add(name="double", status=workflow_pb2.REGISTRATION_STATUS_REGISTERED)
        return pb.SessionResponse(opened=opened)

    scripted.script.open = open_and_refuse
    await connect(scripted, ill_defined, double)
    assert await runs_double(scripted)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["ill-defined" in text and "no next time" in text for text in warnings] == [True]


async def test_a_gateway_that_does_not_answer_the_opening_within_five_seconds_is_dialed_again(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    answer, answered = scripted.script.open, Counter[str]()

    def ignore_the_first(opening: pb.OpenSession) -> pb.SessionResponse | None:
        answered["openings"] += 1
        return None if answered["openings"] == 1 else answer(opening)

    scripted.script.open = ignore_the_first
    await connect(scripted, double)
    first, second = scripted.log.opens()
    assert 4.5 < second.at - first.at < 7
    assert await runs_double(scripted)


# ---- taking runs ----


async def test_the_receipt_comes_before_the_handler_has_ended(scripted: ScriptedGateway, connect: StartWorker) -> None:
    released = asyncio.Event()

    @workflow(name="waits")
    async def waits(ctx: Context) -> None:
        await released.wait()

    await connect(scripted, waits)
    token = scripted.assign("waits")
    assert (await scripted.log.ack(token)).reject_reason == ACCEPTED
    assert scripted.log.results(token) == []
    released.set()
    await scripted.log.result(token)


async def test_the_receipt_does_not_wait_for_a_handler_that_blocks_its_loop(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="blocks")
    async def blocks(ctx: Context) -> None:
        time.sleep(1.0)  # noqa: ASYNC251  # that it blocks the loop is what this is about

    await connect(scripted, blocks)
    first = scripted.assign("blocks")
    await scripted.log.ack(first)
    second = scripted.assign("blocks")
    sent_at = time.monotonic()
    await scripted.log.result(second)
    assert scripted.log.acks(second)[0].at - sent_at < 0.5


async def test_a_run_beyond_the_slots_is_refused_at_once_although_all_of_them_are_busy(
    scripted: ScriptedGateway, connect: StartWorker, released: threading.Event
) -> None:
    @workflow(name="holds-a-thread")
    def holds_a_thread(ctx: BlockingContext) -> None:
        released.wait(10)

    await connect(scripted, holds_a_thread, concurrency=2)
    busy = [scripted.assign("holds-a-thread") for _ in range(2)]
    for token in busy:
        assert (await scripted.log.ack(token)).reject_reason == ACCEPTED
    beyond = scripted.assign("holds-a-thread")
    assert (await scripted.log.ack(beyond)).reject_reason == pb.REJECT_REASON_OVERLOADED
    assert beyond not in states_of((await scripted.log.beat()).leases)

    released.set()
    for token in busy:
        await scripted.log.result(token)
    later = scripted.assign("holds-a-thread")
    assert (await scripted.log.ack(later)).reject_reason == ACCEPTED
    assert scripted.log.items(beyond) == []


async def test_no_more_handlers_run_at_once_than_there_are_slots(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    at_work, most = Counter[str](), 0

    @workflow(name="counted")
    async def counted(ctx: Context) -> None:
        nonlocal most
        at_work["now"] += 1
        most = max(most, at_work["now"])
        await ctx.step.run("some", lambda: None)
        at_work["now"] -= 1

    await connect(scripted, counted, concurrency=3)
    runs = [scripted.assignment("counted") for _ in range(10)]
    scripted.send(assignments=runs)
    await eventually(lambda: len(scripted.log.acks()) == len(runs))
    accepted = [ack.message.lease_token for ack in scripted.log.acks() if ack.message.reject_reason == ACCEPTED]
    assert sorted(accepted) == [run.lease_token for run in runs[:3]]
    for token in accepted:
        await scripted.log.result(token)
    assert most == 3


async def test_a_batch_of_64_runs_is_started_as_a_whole(scripted: ScriptedGateway, connect: StartWorker) -> None:
    together = asyncio.Barrier(64)

    @workflow(name="meets-the-others")
    async def meets_the_others(ctx: Context) -> int:
        return await together.wait()

    await connect(scripted, meets_the_others, concurrency=64)
    runs = [scripted.assignment("meets-the-others") for _ in range(64)]
    scripted.send(assignments=runs)
    results = [await scripted.log.result(run.lease_token) for run in runs]
    assert sorted(value_of(result.output) for result in results) == list(range(64))


async def test_a_run_of_a_workflow_that_the_worker_does_not_have_is_refused_and_not_failed(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, double)
    token = scripted.assign("somebody-elses")
    assert (await scripted.log.ack(token)).reject_reason == pb.REJECT_REASON_UNKNOWN_WORKFLOW
    assert await runs_double(scripted)
    assert scripted.log.items(token) == []
    assert token not in states_of((await scripted.log.beat()).leases)


async def test_a_run_that_is_delivered_twice_under_one_token_is_executed_once(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executions, released = Counter[str](), asyncio.Event()

    @workflow(name="counted")
    async def counted(ctx: Context) -> None:
        executions[ctx.run.id] += 1
        await released.wait()

    await connect(scripted, counted)
    run = scripted.assignment("counted")
    scripted.script.item = lambda item: None
    scripted.send(assignments=[run, run])
    await eventually(lambda: executions)
    scripted.send(assignments=[run])
    await eventually(lambda: len(scripted.log.acks(run.lease_token)) == 3)
    released.set()
    await scripted.log.result(run.lease_token)
    scripted.send(assignments=[run])
    await eventually(lambda: len(scripted.log.acks(run.lease_token)) == 4)

    await scripted.log.beat()
    assert {ack.message.reject_reason for ack in scripted.log.acks()} == {ACCEPTED}
    assert executions == {run.run_id: 1}
    assert len(scripted.log.results(run.lease_token)) == 1


async def test_the_handler_of_a_run_that_is_delivered_as_canceled_is_not_started(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executions = Counter[str]()

    @workflow(name="counted")
    async def counted(ctx: Context) -> None:
        executions[ctx.run.id] += 1

    await connect(scripted, counted)
    tokens = [f"canceled-{n}.before" for n in range(20)]
    for token in tokens:
        scripted.assign("counted", token=token, cancellation=cancellation(token))
        result = await scripted.log.result(token)
        assert executions == {}
        assert result.canceled.reason == pb.CANCELED_REASON_REQUESTED


async def test_messages_about_leases_and_items_that_nobody_has_are_ignored(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, double)
    scripted.send(
        ok_request_ids=[4711],
        item_results=[pb.ItemResult(request_id=4712, status=pb.ITEM_STATUS_LEASE_LOST)],
        cancellations=[cancellation("nobody.has-it")],
        heartbeat_reply=pb.HeartbeatReply(sequence=4713, lost_lease_tokens=["nobody.has-it-either"]),
    )
    assert await runs_double(scripted)
    assert len(scripted.sessions) == 1
