"""Events as waits see them, over the wire: which one reaches which wait, how often, and from when on."""

from __future__ import annotations

import time

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.v1 import workflow_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import OpenWorker, started
from tests.rpc.items import a_result
from tests.rpc.scripted_worker import a_definition
from tests.rpc.wait_items import a_command, a_suspension, an_event_wait, some_waits

KEYS: dict[str, dict[str, str]] = {
    "no key": {},
    "an empty key": {"key": ""},
    "a key": {"key": "order-1"},
    "another case": {"key": "ORDER-1"},
    "a key like a channel": {"key": "7:order-1"},
}


def values(steps: list[pb.WaitResolution]) -> list[tuple[str, bytes]]:
    """What each wait has got, in the order in which they were told."""
    return [(each.step.step_name, each.step.output.data) for each in steps]


@pytest.mark.parametrize("emitted", KEYS)
async def test_an_event_reaches_the_waits_with_just_its_key_and_those_without_one_when_it_has_none(
    calls: Calls, open_worker: OpenWorker, emitted: str
) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, *(an_event_wait(name, **key) for name, key in KEYS.items())))

    await calls.emit("PAID", **KEYS[emitted])
    await calls.emit("paid", b'"this one"', **KEYS[emitted])

    await worker.resolution()
    await worker.quiet()
    assert values(worker.resolutions) == [(emitted, b'"this one"')]


async def test_what_is_emitted_between_two_waits_is_neither_lost_nor_seen_twice_nor_out_of_order(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    for number in range(3):
        await calls.emit("paid", f"{number}".encode(), key="k")

    got = []
    for number in range(3):
        wait = an_event_wait(f"wait {number}", key="k")
        answer = await worker.do(a_suspension(run, wait, steps_recorded=number))
        assert answer.status == pb.ITEM_STATUS_RESOLVED
        got += [step.output.data for step in answer.resolutions if step.step_name == f"wait {number}"]
    assert got == [b"0", b"1", b"2"]

    answer = await worker.suspend(a_suspension(run, an_event_wait("wait 3", key="k"), steps_recorded=3))
    assert answer.status == pb.ITEM_STATUS_SUSPENDED


async def test_one_event_ends_one_wait_of_a_run_and_one_wait_of_every_run(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", slot_limit=2)
    await calls.start_many(2)
    runs = [await worker.take() for _ in range(2)]
    for run in runs:
        await worker.do(some_waits(run, an_event_wait("first"), an_event_wait("second")))

    await calls.emit("paid", b"1")

    await worker.resolution(2)
    await worker.quiet()
    assert {each.lease_token for each in worker.resolutions} == {run.lease_token for run in runs}
    assert values(worker.resolutions) == [("first", b"1")] * 2

    await calls.emit("paid", b"2")
    await worker.resolution(4)
    assert values(worker.resolutions[2:]) == [("second", b"2")] * 2


async def test_a_run_sees_no_event_from_before_its_start(calls: Calls, open_worker: OpenWorker) -> None:
    await calls.emit("paid", b'"before"')
    worker, run = await started(calls, open_worker)

    answer = await worker.do(some_waits(run, an_event_wait("wait")))
    assert answer.status == pb.ITEM_STATUS_OK

    await calls.emit("paid", b'"after"')
    assert (await worker.resolution()).step.output.data == b'"after"'


async def test_a_run_that_an_event_has_started_does_not_see_that_event(calls: Calls, open_worker: OpenWorker) -> None:
    trigger = workflow_pb2.EventTrigger(event_name="paid")
    worker = await open_worker(a_definition("w", event_triggers=[trigger]), slot_limit=2)
    await calls.emit("paid", b'"first"')
    run = await worker.take()
    await worker.do(some_waits(run, an_event_wait("wait")))

    await calls.emit("paid", b'"second"')

    assert (await worker.resolution()).step.output.data == b'"second"'
    assert (await worker.do(a_result(await worker.take()))).status == pb.ITEM_STATUS_OK


@pytest.mark.parametrize("field", ["request_id", "idempotency_key"])
async def test_an_event_that_is_emitted_again_under_its_id_or_key_ends_no_other_wait(
    calls: Calls, open_worker: OpenWorker, field: str
) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, an_event_wait("first"), an_event_wait("second")))

    emitted = [await calls.emit("paid", **{field: "the same"}) for _ in range(3)]

    assert len({one.event_id for one in emitted}) == 1
    await worker.resolution()
    await worker.quiet()
    assert [each.step.step_name for each in worker.resolutions] == ["first"]


async def test_an_event_for_later_ends_no_wait(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, an_event_wait("wait")))

    await calls.emit("paid", available_time=Timestamp(seconds=int(time.time()) + 3600))

    await worker.quiet()
    assert worker.resolutions == []
    assert (await calls.run(run.run_id)).open_waits == 1


async def test_an_event_that_a_run_emits_ends_its_own_wait_too(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, an_event_wait("wait", key="k")))
    payload = {"data": b'"mine"'}

    await worker.do(a_command(run, "emit", emit_event=pb.EmitCommand(event_name="paid", key="k", payload=payload)))

    assert (await worker.resolution()).step.output.data == b'"mine"'


@pytest.mark.parametrize(("key", "came"), [("x" * 257, "257"), ("a\x00b", "\\x00"), ("a\nb", "\\n")])
async def test_a_key_is_at_most_256_bytes_without_control_characters(calls: Calls, key: str, came: str) -> None:
    answer = await refused(calls.emit("paid", key=key))

    assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert answer.field == "key"
    assert "must" in answer.message
    assert came in answer.message

    await calls.emit("paid", key="é" * 128)
