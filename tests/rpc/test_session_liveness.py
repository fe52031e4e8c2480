"""Leases in time: what keeps them, what gives them back, and at what cost. The lease is one second here."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from redflow_sdk.proto.v1 import failure_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.config import Config
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway
from tests.conftest import StartGateway
from tests.rpc.calls import Calls
from tests.rpc.conftest import CallsTo, Dial, OpenWorker
from tests.rpc.items import a_result, a_step, held
from tests.rpc.scripted_worker import ScriptedWorker, an_open

LEASE_S = 1.0


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, timing=Timing(lease_ms=int(LEASE_S * 1000), cancel_grace_ms=1000))


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_run_outlives_its_lease_many_times_while_heartbeats_list_it(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()

    await asyncio.sleep(3.2 * LEASE_S)  # the handler is at work

    assert (await worker.do(a_result(assignment))).status == pb.ITEM_STATUS_OK
    run = await calls.run(run_id)
    assert (run.delivery_count, run.losses, len(worker.assignments)) == (1, 0, 1)


async def test_every_message_shows_that_the_worker_is_there_but_only_heartbeats_renew(
    calls: Calls, open_worker: OpenWorker
) -> None:
    talking, standby = await open_worker("w"), await open_worker("w", slot_limit=0)
    run_id = await calls.start()
    assignment = await talking.take()
    await talking.fall_silent()
    began = now()

    while now() - began < 1.6 * LEASE_S:
        await talking.say(capacity=pb.Capacity(slot_limit=0))
        await asyncio.sleep(0.2)

    assert not talking.ended
    await standby.say(capacity=pb.Capacity(slot_limit=1))
    assert (await standby.assignment()).run_id == run_id
    assert (await talking.do(a_step(assignment))).status == pb.ITEM_STATUS_LEASE_LOST


# ---- receipts ----


async def test_an_assignment_without_a_receipt_is_nobody_elses_before_its_lease_has_ended_and_counts_as_no_loss(
    gateway: Gateway, calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    """It may be on its way still, to a worker that begins it as long as the lease can last."""
    deaf = dial()
    await deaf.open(an_open("w"))
    run_id = await calls.start()
    await deaf.assignment()
    sent_at = now()
    other = await open_worker("w")

    assignment = await other.take()

    assert now() - sent_at >= 0.9 * LEASE_S
    assert (assignment.run_id, assignment.attempt, assignment.delivery_count) == (run_id, 1, 2)
    assert (await calls.run(run_id)).losses == 0


async def test_any_item_of_a_lease_is_its_receipt(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.assignment()
    worker.held.clear()

    assert (await worker.do(a_step(assignment))).status == pb.ITEM_STATUS_OK
    worker.held[assignment.lease_token] = pb.LEASE_STATE_RUNNING

    await asyncio.sleep(1.2 * LEASE_S)  # longer than the time for a receipt, and than the lease
    assert (await worker.do(a_result(assignment))).status == pb.ITEM_STATUS_OK
    assert (await calls.run(run_id)).delivery_count == 1


async def test_a_worker_that_acknowledges_nothing_is_not_given_run_after_run(
    calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    deaf = dial()
    await deaf.open(an_open("w"))
    await calls.start_many(20)

    await deaf.end(within=3)  # it says nothing at all, so it is ended

    assert len(deaf.assignments) <= 2


# ---- heartbeats ----


async def test_a_lease_that_two_heartbeats_leave_out_is_a_loss_and_one_is_forgiven(
    calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    forgetful = dial()
    await forgetful.open(an_open("w"))
    run_id = await calls.start()
    token = (await forgetful.take()).lease_token
    await forgetful.beat(token)
    other = await open_worker("w", slot_limit=0)  # before: beats must not wait for it

    await forgetful.beat()
    await forgetful.beat(token)
    await forgetful.beat()
    assert await calls.status(run_id) == "running"
    assert list((await forgetful.beat(token)).lost_lease_tokens) == []
    for _ in range(2):
        await forgetful.beat()
    assert list((await forgetful.beat(token)).lost_lease_tokens) == [token]
    await other.say(capacity=pb.Capacity(slot_limit=1))

    assert (await other.take()).run_id == run_id
    assert (await calls.run(run_id)).losses == 1


async def test_a_lease_that_its_worker_has_fenced_goes_back_at_once_and_counts_as_no_loss(
    calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    fenced = dial()
    await fenced.open(an_open("w"))
    run_id = await calls.start()
    token = (await fenced.take()).lease_token
    await fenced.beat(token)
    other = await open_worker("w")

    await fenced.say(capacity=pb.Capacity(slot_limit=0))
    await fenced.beat_with(held(token, state=pb.LEASE_STATE_FENCED))

    assert (await other.take()).run_id == run_id
    assert (await calls.run(run_id)).losses == 0


async def test_a_heartbeat_reply_names_every_listed_lease_that_is_lost_each_time(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    nobodys, nowhere = f"{run_id}.{'x' * 15}", f"run_none.{'x' * 15}"

    for _ in range(2):
        reply = await worker.beat(assignment.lease_token, nobodys, nowhere)
        assert sorted(reply.lost_lease_tokens) == sorted([nobodys, nowhere])

    await worker.do(a_result(assignment))
    # Ended as the worker wanted: it is not lost.
    assert list((await worker.beat(assignment.lease_token)).lost_lease_tokens) == []


async def test_a_malformed_token_in_a_heartbeat_is_lost_and_the_session_goes_on(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    await calls.start()
    token = (await worker.take()).lease_token

    reply = await worker.beat("", "x", "💥", token)

    assert token not in reply.lost_lease_tokens
    assert sorted(reply.lost_lease_tokens) == sorted(["", "x", "💥"])


# ---- silence ----


async def test_a_silent_session_is_ended_and_its_runs_go_to_another_worker_when_the_lease_is_over(
    calls: Calls, open_worker: OpenWorker
) -> None:
    silent = await open_worker("w")
    run_id = await calls.start()
    await silent.take()
    await silent.quiet()
    await silent.fall_silent()
    silent_since = now()
    other = await open_worker("w")

    error = await silent.end(within=3)
    assert error is not None
    assert (error.reason, error.permanent) == ("SESSION_SILENT", False)
    assert 0.9 <= now() - silent_since <= 2.5
    assert (await other.assignment(within=3)).run_id == run_id
    assert now() - silent_since >= 0.6 * LEASE_S
    run = await calls.run(run_id)
    assert (run.losses, run.attempt) == (1, 1)


async def lose(worker: ScriptedWorker) -> str:
    """The worker takes a run and dies with it; the run."""
    run_id = (await worker.take()).run_id
    await worker.quiet()
    await worker.cut()
    return run_id


async def test_a_run_that_loses_more_workers_than_it_may_fails_as_worker_lost(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    gateway = await start_gateway(max_losses=1)
    calls = calls_to(gateway)
    run_id = await calls.start()

    for _ in range(2):
        assert await lose(await open_worker("w", at=gateway)) == run_id

    run = await calls.run_in(run_id, "failed", within=3)
    assert run.failure.failure_kind == failure_pb2.FAILURE_KIND_WORKER_LOST
    assert (run.delivery_count, run.attempt) == (2, 1)
