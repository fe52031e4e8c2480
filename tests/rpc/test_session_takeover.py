"""A worker that comes back: its newer session supersedes the older one and takes its leases over, never the reverse."""

from __future__ import annotations

import asyncio

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.store.keys import Keys
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls
from tests.rpc.conftest import CallsTo, OpenWorker
from tests.rpc.items import a_result, a_step, held

HELD = pb.LEASE_VERDICT_KIND_HELD
LOST = pb.LEASE_VERDICT_KIND_LOST
FINISHED = pb.LEASE_VERDICT_KIND_FINISHED
CANCEL_REQUESTED = pb.LEASE_VERDICT_KIND_CANCEL_REQUESTED


async def test_each_held_lease_is_judged_by_itself_in_the_order_in_which_it_was_listed(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", instance_id="instance-1", slot_limit=4)
    await calls.start_many(4)
    going, finished, canceled, kept = [await worker.take() for _ in range(4)]
    await worker.quiet()
    assert (await worker.do(a_result(finished))).status == pb.ITEM_STATUS_OK
    await calls.cancel(canceled.run_id, "no longer wanted")
    await worker.cut()
    tokens = [lease.lease_token for lease in (going, finished, canceled, kept)]
    never_given = f"{going.run_id}.{'x' * 15}"
    listed = [*held(*tokens[:3], never_given), *held(tokens[3], state=pb.LEASE_STATE_NOT_STARTED)]

    again = await open_worker("w", instance_id="instance-1", session_number=2, held_leases=listed, slot_limit=0)

    assert again.opened is not None
    verdicts = again.opened.lease_verdicts
    assert [verdict.lease_token for verdict in verdicts] == [*tokens[:3], never_given, tokens[3]]
    kinds = [verdict.verdict for verdict in verdicts]
    assert kinds == [HELD, FINISHED, CANCEL_REQUESTED, LOST, HELD]
    order = verdicts[2].cancellation
    assert (order.lease_token, order.reason) == (tokens[2], pb.CANCELLATION_REASON_USER)
    assert (order.message, order.grace.ToMilliseconds()) == ("no longer wanted", 1000)
    assert all(not verdict.HasField("cancellation") for verdict in verdicts if verdict.verdict != CANCEL_REQUESTED)
    assert (await again.do(a_result(going))).status == pb.ITEM_STATUS_OK


async def test_a_malformed_lease_token_is_lost_and_the_others_are_judged_all_the_same(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", instance_id="instance-1")
    await calls.start()
    token = (await worker.take()).lease_token
    await worker.quiet()
    await worker.cut()
    malformed = ["", "x", "run_x.", f"{token} ", "💥", "x" * 10_000]

    again = await open_worker(
        "w", instance_id="instance-1", session_number=2, held_leases=held(*malformed, token), slot_limit=0
    )

    assert again.opened is not None
    verdicts = {verdict.lease_token: verdict.verdict for verdict in again.opened.lease_verdicts}
    assert verdicts == {**dict.fromkeys(malformed, LOST), token: HELD}


async def test_a_lease_that_its_worker_stopped_itself_goes_back_on_opening_at_no_cost(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", instance_id="instance-1")
    run_id = await calls.start()
    token = (await worker.take()).lease_token
    await worker.quiet()
    await worker.cut()

    fenced = held(token, state=pb.LEASE_STATE_FENCED)
    again = await open_worker("w", instance_id="instance-1", session_number=2, held_leases=fenced)

    assignment = await again.take()
    assert (assignment.run_id, assignment.attempt, assignment.delivery_count) == (run_id, 1, 2)
    assert assignment.lease_token != token
    assert (await calls.run(run_id)).losses == 0


async def test_held_leases_use_the_slots_of_the_new_session(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w", instance_id="instance-1", slot_limit=2)
    await calls.start_many(4)
    tokens = [(await worker.take()).lease_token for _ in range(2)]
    await worker.quiet()
    await worker.cut()

    again = await open_worker("w", instance_id="instance-1", session_number=2, held_leases=held(*tokens), slot_limit=2)

    await again.quiet()
    assert again.assignments == []
    await again.do(a_result(tokens[0]))
    await again.assignment()
    await again.quiet()
    assert len(again.assignments) == 1


async def test_a_session_that_a_newer_one_has_relieved_elsewhere_neither_renews_nor_releases_its_leases(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker, keys: Keys, redis: RedisCommand
) -> None:
    old_gateway, new_gateway = await start_gateway(), await start_gateway()
    calls = calls_to(new_gateway)
    old = await open_worker("w", at=old_gateway, instance_id="instance-1")
    run_id = await calls.start()
    token = (await old.take()).lease_token
    await old.quiet()
    new = await open_worker(
        "w", at=new_gateway, instance_id="instance-1", session_number=2, held_leases=held(token), slot_limit=1
    )
    assert new.opened is not None
    assert [verdict.verdict for verdict in new.opened.lease_verdicts] == [HELD]
    stamp = await redis("HGET", keys.run(run_id), "leaseOwner")

    # Listed, left out, and the whole session closed: whatever the old session says of the lease is old.
    assert list((await old.beat(token)).lost_lease_tokens) == []
    for _ in range(3):
        await old.beat()
    await old.say(close=pb.CloseSession())
    await old.end()

    assert await redis("HGET", keys.run(run_id), "leaseOwner") == stamp
    assert (await calls.run(run_id)).losses == 0
    assert (await new.do(a_result(token))).status == pb.ITEM_STATUS_OK


async def test_a_lost_stream_changes_nothing_and_a_session_at_another_gateway_goes_on_where_it_ended(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker, keys: Keys, redis: RedisCommand
) -> None:
    one, other = await start_gateway(), await start_gateway()
    calls = calls_to(other)
    worker = await open_worker("w", at=one, instance_id="instance-1")
    run_id = await calls.start()
    assignment = await worker.take()
    assert (await worker.do(a_step(assignment, "a"))).status == pb.ITEM_STATUS_OK
    await worker.quiet()
    before = await redis("HGETALL", keys.run(run_id))

    await worker.cut()

    async def is_gone() -> bool:
        return await calls.worker_list() == []

    await eventually(is_gone, within=2)
    assert await redis("HGETALL", keys.run(run_id)) == before
    again = await open_worker(
        "w", at=other, instance_id="instance-1", session_number=2, held_leases=held(assignment.lease_token)
    )
    assert again.opened is not None
    assert [verdict.verdict for verdict in again.opened.lease_verdicts] == [HELD]
    # Orders to stop come to where the lease is now.
    await calls.cancel(run_id)
    await again.until(lambda: again.cancellations, within=1, saying="the order went elsewhere")
    assert (await again.do(a_step(assignment, "b"))).status == pb.ITEM_STATUS_OK
    assert (await again.do(a_result(assignment, steps_recorded=2))).status == pb.ITEM_STATUS_CANCELED
    assert (await calls.run(run_id)).delivery_count == 1


async def test_a_report_on_the_old_stream_is_still_taken_because_the_token_is_the_authority(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    old_gateway, new_gateway = await start_gateway(), await start_gateway()
    old = await open_worker("w", at=old_gateway, instance_id="instance-1")
    run_id = await calls_to(new_gateway).start()
    token = (await old.take()).lease_token
    await old.quiet()
    report = a_step(token, "a", b"1")
    new = await open_worker("w", at=new_gateway, instance_id="instance-1", session_number=2, held_leases=held(token))

    assert (await old.do(report)).status == pb.ITEM_STATUS_OK
    assert (await new.do(report)).status == pb.ITEM_STATUS_DUPLICATE
    assert [step.step_name for step in await calls_to(new_gateway).steps(run_id)] == ["a"]


async def test_the_old_session_hands_nothing_back_when_both_are_on_one_gateway(
    calls: Calls, open_worker: OpenWorker
) -> None:
    """The stream of the superseded session ends while the newer one holds its leases."""
    earlier = await open_worker("w", instance_id="instance-1", slot_limit=3)
    run_ids = await calls.start_many(3)
    tokens = [(await earlier.take()).lease_token for _ in range(3)]

    later = await open_worker("w", instance_id="instance-1", session_number=2, held_leases=held(*tokens), slot_limit=3)

    await earlier.end()
    await later.quiet()
    assert later.assignments == []
    answers = await asyncio.gather(*(later.do(a_result(token)) for token in tokens))
    assert [answer.status for answer in answers] == [pb.ITEM_STATUS_OK] * 3
    assert [await calls.status(run_id) for run_id in run_ids] == ["succeeded"] * 3


async def test_an_opening_supersedes_the_earlier_session_of_the_same_instance_and_of_no_other(
    calls: Calls, open_worker: OpenWorker
) -> None:
    earlier = await open_worker("w", instance_id="instance-1", session_number=1)
    other = await open_worker("other", instance_id="instance-2", session_number=1)
    run_id = await calls.start("w")
    token = (await earlier.take()).lease_token
    await earlier.quiet()

    later = await open_worker("w", instance_id="instance-1", session_number=2, held_leases=held(token))

    error = await earlier.end()
    assert error is not None
    assert error.reason == "SESSION_SUPERSEDED"
    assert later.opened is not None
    assert [verdict.verdict for verdict in later.opened.lease_verdicts] == [pb.LEASE_VERDICT_KIND_HELD]
    await other.quiet()
    assert not other.ended
    names = [worker.session_id for worker in await calls.worker_list()]
    assert earlier.opened is not None
    assert earlier.opened.session_id not in names
    assert later.opened.session_id in names
    assert await calls.status(run_id) == "running"
    assert (await later.do(a_step(token))).status == pb.ITEM_STATUS_OK


async def test_a_superseded_session_is_told_not_to_come_back(calls: Calls, open_worker: OpenWorker) -> None:
    earlier = await open_worker("w", instance_id="instance-1", session_number=1)

    await open_worker("w", instance_id="instance-1", session_number=2)

    error = await earlier.end()
    assert error is not None
    assert (error.reason, error.permanent) == ("SESSION_SUPERSEDED", True)


async def test_a_late_older_open_takes_no_lease_from_the_newer_session(
    calls: Calls, open_worker: OpenWorker, keys: Keys, redis: RedisCommand
) -> None:
    newer = await open_worker("w", instance_id="instance-1", session_number=7)
    run_id = await calls.start("w")
    token = (await newer.take()).lease_token
    await newer.quiet()
    stamp = await redis("HGET", keys.run(run_id), "leaseOwner")

    older = await open_worker("w", instance_id="instance-1", session_number=3, held_leases=held(token), slot_limit=0)

    assert older.opened is not None
    assert [verdict.verdict for verdict in older.opened.lease_verdicts] == [pb.LEASE_VERDICT_KIND_LOST]
    assert await redis("HGET", keys.run(run_id), "leaseOwner") == stamp
    assert not newer.ended
    await older.beat(token)
    assert await redis("HGET", keys.run(run_id), "leaseOwner") == stamp
    assert list((await newer.beat(token)).lost_lease_tokens) == []
    assert (await newer.do(a_step(token))).status == pb.ITEM_STATUS_OK
