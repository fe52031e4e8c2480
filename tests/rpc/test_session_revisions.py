"""Workers of other releases than the gateway's: the revision that both speak, and what a later one may add."""

from __future__ import annotations

import pytest

from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.gateway import Gateway
from tests.rpc.calls import Calls
from tests.rpc.conftest import Dial, OpenWorker
from tests.rpc.items import a_release, a_result, a_step, held
from tests.rpc.scripted_worker import an_open, refusal_of


@pytest.mark.parametrize(("lowest", "highest"), [(0, 0), (2, 9), (3, 1), (-5, -1)])
async def test_a_revision_that_the_gateway_does_not_speak_is_refused_for_good(
    gateway: Gateway, dial: Dial, lowest: int, highest: int
) -> None:
    error = await refusal_of(dial(), an_open("w", min_revision=lowest, max_revision=highest))

    assert (error.reason, error.permanent) == ("REVISION_UNSUPPORTED", True)
    assert str(lowest) in error.message
    assert str(highest) in error.message


@pytest.mark.parametrize(("lowest", "highest"), [(1, 1), (0, 1), (1, 2), (0, 1000)])
async def test_the_highest_common_revision_is_spoken(gateway: Gateway, dial: Dial, lowest: int, highest: int) -> None:
    opened = await dial().open(an_open("w", min_revision=lowest, max_revision=highest))

    assert opened.revision == 1


def with_unknown_field(message: bytes) -> bytes:
    """The message with a field that only a later revision knows: number 900, the bytes `new`."""
    return message + b"\xa2\x38\x03new"


async def test_fields_and_enum_values_of_a_later_revision_are_ignored(
    calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    opening = pb.OpenSession.FromString(with_unknown_field(an_open("w").SerializeToString()))
    opening.capabilities.extend([pb.CAPABILITY_PARKING, 77])  # type: ignore[list-item]  # a value we do not know
    worker = dial()
    await worker.open(opening)
    run_id = await calls.start("w")
    assignment = await worker.assignment()

    ack = pb.AssignmentAck(lease_token=assignment.lease_token)
    await worker.say(assignment_acks=[pb.AssignmentAck.FromString(with_unknown_field(ack.SerializeToString()))])
    step = pb.StepReport.FromString(with_unknown_field(a_step(assignment, step_kind=77).SerializeToString()))

    assert (await worker.do(step)).status == pb.ITEM_STATUS_OK
    assert [step.step_name for step in await calls.steps(run_id)] == ["a"]


async def test_a_lease_state_of_a_later_revision_is_read_as_unspecified_and_the_lease_is_renewed(
    calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    await calls.start("w")
    assignment = await worker.take()

    reply = await worker.beat_with(held(assignment.lease_token, state=77))  # type: ignore[arg-type]  # as above

    assert list(reply.lost_lease_tokens) == []
    assert not worker.ended


async def test_a_message_of_fields_that_it_does_not_know_is_none_and_the_session_goes_on(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start("w")
    assignment = await worker.take()

    await worker.write(pb.SessionRequest.FromString(with_unknown_field(b"")))
    beat = pb.SessionRequest(heartbeat=pb.Heartbeat(sequence=100, leases=held(assignment.lease_token)))
    await worker.write(pb.SessionRequest.FromString(with_unknown_field(beat.SerializeToString())))
    await worker.until(lambda: worker.replies, saying="no answer to a heartbeat beside a field that is unknown")

    assert (await worker.do(a_result(assignment))).status == pb.ITEM_STATUS_OK
    assert (await calls.run(run_id)).output.data == b'"done"'
    assert not worker.ended


async def test_a_run_that_is_rejected_for_a_reason_that_it_does_not_know_goes_to_another_worker(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start("w")

    await worker.reject(await worker.assignment(), 77)  # type: ignore[arg-type]  # that is the case

    again = await (await open_worker("w")).assignment()
    assert (again.run_id, again.attempt) == (run_id, 1)


async def test_a_run_that_is_released_for_a_reason_that_it_does_not_know_is_delivered_again(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start("w")
    assignment = await worker.take()

    released = await worker.do(a_release(assignment, 77))  # type: ignore[arg-type]  # that is the case

    again = await worker.assignment()
    assert released.status == pb.ITEM_STATUS_OK
    assert (again.run_id, again.attempt) == (run_id, 1)


async def test_a_wait_of_a_kind_that_it_does_not_know_is_refused_and_the_lease_stays(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start("w")
    assignment = await worker.take()
    wait = pb.Wait.FromString(with_unknown_field(pb.Wait(step_name="a").SerializeToString()))

    answer = await worker.do(pb.Suspension(lease_token=assignment.lease_token, waits=[wait]))

    assert answer.status == pb.ITEM_STATUS_INVALID
    assert (await worker.do(a_result(assignment))).status == pb.ITEM_STATUS_OK
    assert (await calls.run(run_id)).output.data == b'"done"'


async def test_a_result_of_an_outcome_that_it_does_not_know_is_no_success(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start("w")
    assignment = await worker.take()
    nothing = pb.RunResult(lease_token=assignment.lease_token)

    unknown = await worker.do(pb.RunResult.FromString(with_unknown_field(nothing.SerializeToString())))

    assert (unknown.status, unknown.reason) == (pb.ITEM_STATUS_INVALID, "UNIMPLEMENTED")
    assert "outcome" in unknown.message
    assert (await worker.do(nothing)).status == pb.ITEM_STATUS_OK, "a success without an output"
    assert (await calls.run(run_id)).status == run_pb2.RUN_STATUS_SUCCEEDED
