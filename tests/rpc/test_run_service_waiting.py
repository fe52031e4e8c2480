"""RunService: waiting for the end of a run, and why a run waits."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.gateway import Gateway
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import CallsTo, OpenWorker
from tests.rpc.items import a_raised, a_release, a_result, held
from tests.rpc.scripted_worker import a_definition

WAIT_RUN = "[/redflow.api.v1.RunService/WaitRun]"


def waiting(calls: Calls, run_id: str, seconds: float | None = None) -> asyncio.Task[pb.WaitRunResponse]:
    """A caller who waits for the end of a run."""
    timeout = None if seconds is None else Duration(nanos=int(seconds * 1e9))

    async def wait() -> pb.WaitRunResponse:
        return await calls.runs.WaitRun(pb.WaitRunRequest(run_id=run_id, timeout=timeout))

    return asyncio.create_task(wait())


def callers() -> int:
    """The callers of WaitRun that a gateway still serves: gRPC names the task of each handler by its method."""
    return sum(WAIT_RUN in task.get_name() for task in asyncio.all_tasks())


# ---- waiting ----


async def test_a_run_that_has_ended_is_answered_at_once_with_its_payloads(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    await worker.do(a_result(await worker.take(), b'"out"'))

    answer = await asyncio.wait_for(waiting(calls, run_id), 1)

    assert answer.done
    assert (answer.run.run_id, answer.run.output.data) == (run_id, b'"out"')


async def test_the_end_of_a_run_is_heard_at_once_also_through_another_gateway(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    here, there = await start_gateway(), await start_gateway()
    calls = calls_to(here)
    worker = await open_worker("w", at=there, slot_limit=3)
    run_ids = await calls.start_many(3)
    assignments = {one.run_id: one for one in [await worker.take() for _ in range(3)]}
    waits = [waiting(calls, run_id) for run_id in run_ids]
    await eventually(lambda: callers() == 3)
    # Each of them waits by now, if a call that came after theirs is answered.
    await calls.run(run_ids[0])
    began = time.monotonic()

    await worker.do(a_result(assignments[run_ids[0]]))
    await worker.do(a_raised(assignments[run_ids[1]]))
    await calls.cancel(run_ids[2])
    await worker.do(a_result(assignments[run_ids[2]]))

    answers = await asyncio.wait_for(asyncio.gather(*waits), 2)
    assert time.monotonic() - began < 0.8, "it was asked for, not heard"
    assert [answer.done for answer in answers] == [True] * 3
    assert [answer.run.status for answer in answers] == [
        run_pb2.RUN_STATUS_SUCCEEDED,
        run_pb2.RUN_STATUS_FAILED,
        run_pb2.RUN_STATUS_CANCELED,
    ]


@pytest.mark.parametrize("seconds", [0, 0.001, 0.2])
async def test_a_run_that_goes_on_is_answered_as_not_done_when_the_time_is_over(calls: Calls, seconds: float) -> None:
    run_id = await calls.start()
    began = time.monotonic()

    answer = await asyncio.wait_for(waiting(calls, run_id, seconds), 2)

    assert time.monotonic() - began >= seconds
    assert (answer.done, answer.run.run_id, answer.run.status) == (False, run_id, run_pb2.RUN_STATUS_QUEUED)


async def test_a_negative_timeout_is_refused_and_a_long_one_is_cut_to_fifty_seconds(calls: Calls) -> None:
    run_id = await calls.start()

    for seconds in (-1, -(10**13)):
        request = pb.WaitRunRequest(run_id=run_id, timeout=Duration(seconds=seconds))
        answer = await refused(calls.runs.WaitRun(request))
        assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
        assert answer.field == "timeout"
    call = calls.runs.WaitRun(pb.WaitRunRequest(run_id=run_id, timeout=Duration(seconds=86_400)))
    await eventually(lambda: callers() == 1)
    call.cancel()


async def test_five_hundred_callers_on_one_run_are_all_answered(
    gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    waits = [waiting(calls, run_id) for _ in range(500)]
    await eventually(lambda: gateway._waiters.count == 500, within=10)

    await calls.start("other")  # a call beside them on the same channel is not held up
    await worker.do(a_result(assignment))

    answers = await asyncio.wait_for(asyncio.gather(*waits), 5)
    assert all(answer.done for answer in answers)
    assert gateway._waiters.count == 0


async def test_nothing_is_left_of_callers_that_hang_up_and_the_run_goes_on(
    gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    requests = [pb.WaitRunRequest(run_id=run_id)] * 50
    pending = [calls.runs.WaitRun(request) for request in requests]
    await eventually(lambda: gateway._waiters.count == 50)
    staying = waiting(calls, run_id)

    for call in pending:
        call.cancel()

    await eventually(lambda: gateway._waiters.count == 1, within=1, saying="waiters are left")
    await eventually(lambda: callers() == 1, within=1)
    assert (await worker.do(a_result(assignment))).status == worker_pb2.ITEM_STATUS_OK
    assert (await asyncio.wait_for(staying, 2)).done
    assert gateway._waiters._waiting == {}
    assert gateway.telemetry.counters["faults"] == 0


# ---- why a run waits ----


async def reason(calls: Calls, run_id: str) -> tuple[str, run_pb2.WaitingFor]:
    """The one thing that a run waits for: its kind in a word, and all of it."""
    [what] = (await calls.run(run_id)).waiting_for
    return run_pb2.WaitingKind.Name(what.kind).removeprefix("WAITING_KIND_").lower(), what


async def test_a_delayed_run_says_until_when(calls: Calls) -> None:
    at = Timestamp(seconds=4_000_000_000)
    run_id = await calls.start(available_time=at)

    kind, what = await reason(calls, run_id)

    assert (kind, what.until_time) == ("delayed", at)


async def test_a_run_that_backs_off_says_until_when(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker(a_definition("w", max_attempts=2))
    run_id = await calls.start()
    await worker.do(a_raised(await worker.take(), next_retry_delay=Duration(seconds=60)))

    kind, what = await reason(calls, run_id)

    assert (kind, what.until_time) == ("backing_off", (await calls.run(run_id)).available_time)
    assert 50 < what.until_time.ToSeconds() - time.time() < 70


async def test_a_run_says_since_when_it_stands_where_it_is(calls: Calls, open_worker: OpenWorker) -> None:
    run_id = await calls.start(max_attempts=3)
    created = (await calls.run(run_id)).create_time
    assert (await reason(calls, run_id))[1].since_time == created

    worker = await open_worker("w")
    await worker.do(a_raised(await worker.take(), next_retry_delay=Duration(seconds=1)))
    kind, backing_off = await reason(calls, run_id)
    assert (kind, created.ToMilliseconds() <= backing_off.since_time.ToMilliseconds()) == ("backing_off", True)
    assert backing_off.until_time.ToMilliseconds() - backing_off.since_time.ToMilliseconds() == 1000

    assignment = await worker.take()
    await worker.say(capacity=worker_pb2.Capacity(slot_limit=0))
    await worker.do(a_release(assignment))
    kind, queued = await reason(calls, run_id)
    assert kind == "no_slot"
    assert queued.since_time.ToMilliseconds() >= backing_off.until_time.ToMilliseconds()


async def test_a_queued_run_says_whether_nobody_serves_it_or_nobody_has_a_slot(
    calls: Calls, open_worker: OpenWorker
) -> None:
    run_id = await calls.start("w", "q")
    kind, what = await reason(calls, run_id)
    assert kind == "no_worker"
    assert "'w'" in what.detail
    assert "'q'" in what.detail

    await open_worker(a_definition("other", "q"), slot_limit=5)
    await open_worker(a_definition("w", "elsewhere"), owner="owner-2", slot_limit=5)
    assert (await reason(calls, run_id))[0] == "no_worker"

    busy = await open_worker(a_definition("w", "q"), owner="owner-3", slot_limit=0)
    kind, what = await reason(calls, run_id)
    assert (kind, what.detail) == ("no_slot", "1 worker serves it, and none has a free slot")

    await busy.say(close=worker_pb2.CloseSession())
    await busy.end()

    async def nobody() -> bool:
        return (await reason(calls, run_id))[0] == "no_worker"

    await eventually(nobody)


async def test_a_running_run_names_its_worker_wherever_its_session_is(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    one, other = await start_gateway(), await start_gateway()
    calls = calls_to(other)
    worker = await open_worker("w", at=one, worker_name="<b>worker</b>", instance_id="instance-1")
    run_id = await calls.start()
    token = (await worker.take()).lease_token
    assert (await calls.run(run_id)).worker_name == "<b>worker</b>"
    assert list((await calls.run(run_id)).waiting_for) == []

    await open_worker(
        "w", at=other, worker_name="the same later", instance_id="instance-1", session_number=2, held_leases=held(token)
    )

    assert (await calls.run(run_id)).worker_name == "the same later"


async def test_a_run_that_has_ended_waits_for_nothing_and_has_no_worker(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    await worker.do(a_result(await worker.take()))

    run = await calls.run(run_id)

    assert (list(run.waiting_for), run.worker_name) == ([], "")
