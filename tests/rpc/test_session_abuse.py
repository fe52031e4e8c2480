"""Workers that misbehave: each ends its own session at most. The gateway and everybody else go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_sdk.proto.worker.v1 import worker_pb2_grpc as stubs
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.rpc.calls import Calls
from tests.rpc.conftest import CallsTo, Dial, OpenWorker
from tests.rpc.items import a_result, a_step, held
from tests.rpc.scripted_worker import ScriptedWorker, an_open

SESSION = "/redflow.worker.v1.WorkerService/Session"
MIB = 1024 * 1024
GARBAGE = (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"GET / HTTP/1.1\r\n\r\n", b"\x0a\x05\x22\x03\xff\xfe\xfd")
"""The last one is a well-formed message whose text is not UTF-8."""


@asynccontextmanager
async def others_go_on(calls: Calls, open_worker: OpenWorker) -> AsyncIterator[None]:
    """Another worker on the gateway works on runs meanwhile, and none is stuck."""
    worker = await open_worker("bystander", owner="bystander")
    done = 0
    stopping = asyncio.Event()

    async def work() -> None:
        nonlocal done
        while not stopping.is_set():
            async with asyncio.timeout(15):
                await calls.start("bystander")
                await worker.do(a_result(await worker.take()))
            done += 1

    working = asyncio.create_task(work())
    try:
        yield
        before = done
        await eventually(lambda: done > before or working.done(), within=20, saying="the other worker is stuck")
        assert not working.done(), working
    finally:
        stopping.set()
        await asyncio.wait([working])
    assert not worker.ended


async def only_the_bystander_is_left(calls: Calls) -> None:
    async def is_so() -> bool:
        return [worker.owner for worker in await calls.worker_list()] == ["bystander"]

    await eventually(is_so, within=5)


def raw_session(calls: Calls) -> grpc.aio.StreamStreamCall[bytes, pb.SessionResponse]:
    """A session whose requests are sent as they are."""
    call = calls.channel.stream_stream(SESSION, lambda request: request, pb.SessionResponse.FromString)
    return call()  # type: ignore[no-any-return]  # the stub is untyped


async def ending_of(call: Any) -> tuple[grpc.StatusCode, list[str]]:  # Any: a call of any types
    """The status of a stream, and the reasons of the errors that came on it."""
    reasons = []
    try:
        async with asyncio.timeout(5):
            while (response := await call.read()) is not grpc.aio.EOF:
                if response.HasField("error"):
                    reasons.append(response.error.reason)
            return await call.code(), reasons
    except grpc.aio.AioRpcError as error:
        return error.code(), reasons


# ---- what is no message ----


@pytest.mark.parametrize("number", range(len(GARBAGE)))
@pytest.mark.parametrize("place", ["first", "later"])
async def test_bytes_that_are_no_message_end_their_session_and_are_no_fault_of_the_gateway(
    gateway: Gateway, calls: Calls, open_worker: OpenWorker, number: int, place: str
) -> None:
    async with others_go_on(calls, open_worker):
        call = raw_session(calls)
        if place == "later":
            await call.write(pb.SessionRequest(open=an_open("w")).SerializeToString())
            await call.read()

        await call.write(GARBAGE[number])

        code, reasons = await ending_of(call)
        await only_the_bystander_is_left(calls)
    assert (code, reasons) == (grpc.StatusCode.OK, ["PROTOCOL_VIOLATION"])
    assert gateway.telemetry.counters["faults"] == 0


async def test_a_message_over_the_largest_size_ends_its_session_only(calls: Calls, open_worker: OpenWorker) -> None:
    async with others_go_on(calls, open_worker):
        call = stubs.WorkerServiceStub(calls.channel).Session()
        await call.write(pb.SessionRequest(open=an_open("w")))
        assert (await call.read()).HasField("opened")

        await call.write(pb.SessionRequest(step_reports=[a_step("x", "a", b"x" * (40 * MIB))]))

        code, _ = await ending_of(call)
        await only_the_bystander_is_left(calls)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_message_a_little_over_the_advertised_size_is_refused_with_a_reason(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    assert worker.opened is not None
    size = worker.opened.limits.max_message_bytes
    await calls.start()
    assignment = await worker.take()
    steps = [a_step(assignment, f"s{number}", b"x" * (size // 8)) for number in range(8)]

    await worker.send(*steps)

    await worker.until(lambda: worker.ended or worker.answers, saying="no answer")
    assert worker.ended, "it was taken"
    assert worker.error is not None, worker.code
    assert str(size) in worker.error.message


# ---- too much ----


async def test_a_heartbeat_with_ten_thousand_tokens_is_answered_for_each(calls: Calls, open_worker: OpenWorker) -> None:
    async with others_go_on(calls, open_worker):
        worker = await open_worker("w")
        run_id = await calls.start()
        token = (await worker.take()).lease_token
        unknown = [f"{run_id}.{number:015}" for number in range(5000)]
        unknown += [f"run_{number}.{'x' * 15}" for number in range(5000)]

        reply = await worker.beat_with(held(*unknown, token))

        assert sorted(reply.lost_lease_tokens) == sorted(unknown)
        assert (await worker.do(a_result(token))).status == pb.ITEM_STATUS_OK


async def test_a_flood_of_items_is_answered_one_by_one(calls: Calls, open_worker: OpenWorker) -> None:
    async with others_go_on(calls, open_worker):
        worker = await open_worker("w")
        await calls.start()
        assignment = await worker.take()
        reports = [a_step(assignment, f"s{number % 50}") for number in range(10_000)]

        for begin in range(0, len(reports), 1000):
            await worker.send(*reports[begin : begin + 1000])

        last = [await worker.answer_to(report) for report in reports]
        statuses = [answer.status for answer in last]
        assert statuses.count(pb.ITEM_STATUS_OK) == 50
        assert statuses.count(pb.ITEM_STATUS_DUPLICATE) == 9950
        assert await calls.steps(assignment.run_id)


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def open_streams() -> int:
    """The streams of workers that the gateway still serves: gRPC names the task of each handler by its method."""
    return sum(f"[{SESSION}]" in task.get_name() for task in asyncio.all_tasks())


NARROW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16384), ("grpc.use_local_subchannel_pool", 1))
"""A channel that takes in little of what nobody reads: else its own buffers would hold all of it."""


@asynccontextmanager
async def flooding(gateway: Gateway) -> AsyncIterator[asyncio.Task[None]]:
    """A worker that opens a session, sends item after item, and reads no answer."""

    async def flood() -> None:
        message = pb.SessionRequest(step_reports=[a_step("no token", "x" * 200) for _ in range(500)])
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            while True:
                await call.write(message)

    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.port}", options=NARROW) as channel:
        call = stubs.WorkerServiceStub(channel).Session()
        await call.write(pb.SessionRequest(open=an_open("w")))
        await call.read()
        # Its write is not canceled: that would cut the stream, which is what the gateway has to do.
        task = asyncio.create_task(flood())
        yield task
        call.cancel()
        await asyncio.wait([task])


async def test_a_worker_that_never_reads_loses_its_session_and_costs_no_more_than_its_bound(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    gateway = await start_gateway(timing=Timing(lease_ms=1500, cancel_grace_ms=1000))
    calls = calls_to(gateway)
    async with flooding(gateway) as flood:
        async with others_go_on(calls, partial(open_worker, at=gateway)):
            memory = resident_bytes()

            await only_the_bystander_is_left(calls)

            assert gateway.telemetry.counters["refused.PROTOCOL_VIOLATION"] == 1
            assert not flood.done(), "its stream has not been drained: nobody reads it"
            assert resident_bytes() - memory < 50 * MIB
        # gRPC cannot end a stream that its peer does not read, but a gateway that stops does not wait for it.
        began = asyncio.get_running_loop().time()
        await gateway.stop()
        assert asyncio.get_running_loop().time() - began < 2
        await asyncio.wait([flood], timeout=2)
        assert flood.done()


async def test_a_connection_that_breaks_while_the_gateway_writes_is_no_fault(
    gateway: Gateway, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    async with flooding(gateway):
        await eventually(lambda: gateway.telemetry.counters["refused.PROTOCOL_VIOLATION"], saying="it reads after all")

    await eventually(lambda: open_streams() == 0)
    await _nobody_is_connected(calls)
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


# ---- many ----


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def open_and_cut(gateway: Gateway, count: int, leave: Callable[[int, ScriptedWorker], Awaitable[None]]) -> None:
    """Opens so many sessions at once over a few channels, and has each leave in its way."""
    channels = [Calls(f"127.0.0.1:{gateway.port}") for _ in range(10)]
    workers = [ScriptedWorker(channels[number % 10].channel) for number in range(count)]
    await asyncio.gather(*(worker.open(an_open("w", slot_limit=0)) for worker in workers))
    await asyncio.gather(*(leave(number, worker) for number, worker in enumerate(workers)))
    for channel in channels:
        await channel.close()
    await asyncio.gather(*(worker.cut() for worker in workers))


async def leave(number: int, worker: ScriptedWorker) -> None:
    """Breaks off, ends its side, closes, or does nothing, so that its channel is closed under it."""
    if number % 4 == 0:
        await worker.cut()
    elif number % 4 == 1:
        await worker.finish_writing()
    elif number % 4 == 2:
        await worker.say(close=pb.CloseSession())


async def test_nothing_is_left_of_two_hundred_sessions_that_broke_off(
    gateway: Gateway, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    await open_and_cut(gateway, 20, leave)
    await _nobody_is_connected(calls)
    tasks, files = len(asyncio.all_tasks()), open_files()

    await open_and_cut(gateway, 200, leave)

    await _nobody_is_connected(calls)
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks, within=5, saying="tasks are left")
    await eventually(lambda: open_files() <= files + 2, within=5, saying="files are left")
    assert gateway.telemetry.counters["faults"] == 0
    assert gateway.telemetry.counters["sessions.opened"] == gateway.telemetry.counters["sessions.closed"] == 220
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def _nobody_is_connected(calls: Calls) -> None:
    async def is_so() -> bool:
        return await calls.worker_list() == []

    await eventually(is_so, within=5)


async def test_a_worker_that_comes_back_again_and_again_has_one_session_and_keeps_its_lease(
    calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    first = await open_worker("w", instance_id="instance-1")
    run_id = await calls.start()
    token = (await first.take()).lease_token
    await first.quiet()

    workers = [dial() for _ in range(30)]
    for number, worker in enumerate(workers, start=2):
        await worker.open(an_open("w", instance_id="instance-1", session_number=number, held_leases=held(token)))

    async def has_one() -> bool:
        return len(await calls.worker_list()) == 1

    await eventually(has_one)
    assert [worker.ended for worker in workers[-1:]] == [False]
    assert (await workers[-1].do(a_result(token))).status == pb.ITEM_STATUS_OK
    assert (await calls.run(run_id)).delivery_count == 1


async def test_forty_large_inputs_arrive_in_messages_that_a_connection_takes(
    calls: Calls, open_worker: OpenWorker
) -> None:
    data = b"x" * (MIB // 2)
    run_ids = [await calls.start(data=data) for _ in range(40)]

    worker = await open_worker("w", slot_limit=40)

    assignments = [await worker.take() for _ in range(40)]
    assert [one.run_id for one in assignments] == run_ids
    assert all(one.input.data == data for one in assignments)
    assert worker.order.count("assignments") >= 10
