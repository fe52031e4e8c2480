"""Health, reflection, and what this version does not serve."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from redflow_sdk.proto.api.v1 import event_service_pb2, run_service_pb2, system_service_pb2, workflow_service_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.leases import Claim, Claimed
from redflow_server.engine import dispatcher
from redflow_server.gateway import Gateway
from redflow_server.loops import loop
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import CallsTo, OpenWorker

WORKER_SERVICE = "redflow.worker.v1.WorkerService"
FILES = (event_service_pb2, run_service_pb2, system_service_pb2, workflow_service_pb2, worker_pb2)
SERVICES = {service.full_name: service for file in FILES for service in file.DESCRIPTOR.services_by_name.values()}
NOT_SERVED = {
    "redflow.api.v1.RunService.ReplayRun",
    "redflow.api.v1.RunService.ResumeRun",
}


async def becomes(calls: Calls, service: str, wanted: str) -> None:
    async def is_so() -> bool:
        return await calls.health_of(service) == wanted

    await eventually(is_so, within=5)


# ---- health ----


async def test_a_gateway_that_reaches_its_store_serves_workers(calls: Calls) -> None:
    await becomes(calls, WORKER_SERVICE, "SERVING")
    assert await calls.health_of("") == "SERVING"


async def test_the_health_of_a_service_that_does_not_exist_is_not_found(calls: Calls) -> None:
    answer = await refused(calls.health_of("no.such.Service"))

    assert answer.code is grpc.StatusCode.NOT_FOUND


async def test_a_gateway_of_which_a_loop_has_died_serves_no_workers_but_is_alive(
    gateway: Gateway, calls: Calls
) -> None:
    await becomes(calls, WORKER_SERVICE, "SERVING")

    await gateway.duties.reaper.stop()

    await becomes(calls, WORKER_SERVICE, "NOT_SERVING")
    assert await calls.health_of("") == "SERVING"


async def test_a_gateway_whose_claims_are_not_answered_any_more_serves_no_workers_and_says_so(
    gateway: Gateway,
    calls: Calls,
    open_worker: OpenWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Everything else of it works: calls are answered, loops run, Redis is there."""
    monkeypatch.setattr(dispatcher, "STUCK_S", 1.5)
    await open_worker("w")
    await becomes(calls, WORKER_SERVICE, "SERVING")
    unanswered: list[asyncio.Future[Claimed]] = []

    def claim(claim: Claim) -> asyncio.Future[Claimed]:
        unanswered.append(asyncio.get_running_loop().create_future())
        return unanswered[-1]

    monkeypatch.setattr(gateway.store, "claim", claim)
    run_id = await calls.start()

    await becomes(calls, WORKER_SERVICE, "NOT_SERVING")
    assert await calls.status(run_id) == "queued"
    assert caplog.text.count("takes no workers: runs are not brought to workers") == 1
    for future in unanswered:
        future.set_result(Claimed((), (), 0))
    await becomes(calls, WORKER_SERVICE, "SERVING")


async def test_a_gateway_that_does_not_look_at_lanes_any_more_serves_no_workers(
    gateway: Gateway, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "STUCK_S", 1.5)
    await becomes(calls, WORKER_SERVICE, "SERVING")

    monkeypatch.setattr(gateway._dispatcher, "wake", lambda: None)

    await becomes(calls, WORKER_SERVICE, "NOT_SERVING")


async def test_a_gateway_of_which_a_pass_does_not_end_serves_no_workers_until_it_does(
    gateway: Gateway, calls: Calls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "STUCK_S", 0.5)
    await becomes(calls, WORKER_SERVICE, "SERVING")
    goes_on = asyncio.Event()

    async def hangs() -> bool:
        await goes_on.wait()
        return False

    monkeypatch.setattr(gateway.duties.look_ahead, "_tick", hangs)

    await becomes(calls, WORKER_SERVICE, "NOT_SERVING")
    assert "takes no workers: the loop timetable does not run, or does not get on" in caplog.text
    goes_on.set()
    await becomes(calls, WORKER_SERVICE, "SERVING")


async def test_who_watches_the_health_hears_of_a_drain(gateway: Gateway, calls: Calls) -> None:
    await becomes(calls, WORKER_SERVICE, "SERVING")
    watch = calls.health.Watch(health_pb2.HealthCheckRequest(service=WORKER_SERVICE))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING

    await gateway.drain()

    assert (await asyncio.wait_for(watch.read(), 2)).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert await calls.health_of("") == "SERVING"
    watch.cancel()


# ---- reflection ----


async def reflected(
    calls: Calls,
    **fields: Any,  # Any: whatever the message takes
) -> reflection_pb2.ServerReflectionResponse:
    """One answer of the reflection service."""
    call = reflection_pb2_grpc.ServerReflectionStub(calls.channel).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(**fields))
    answer = await call.read()
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    return answer  # type: ignore[no-any-return]  # the stubs of the package have no types


async def test_reflection_lists_every_service_and_its_descriptors(
    start_gateway: StartGateway, calls_to: CallsTo
) -> None:
    calls = calls_to(await start_gateway(has_reflection=True))

    listed = await reflected(calls, list_services="")

    names = {service.name for service in listed.list_services_response.service}
    assert names == {*SERVICES, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    for name, service in SERVICES.items():
        found = await reflected(calls, file_containing_symbol=name)
        [file, *_] = map(FileDescriptorProto.FromString, found.file_descriptor_response.file_descriptor_proto)
        methods = [method.name for one in file.service if one.name == service.name for method in one.method]
        assert methods == [method.name for method in service.methods]


async def test_reflection_is_off_unless_it_is_asked_for(calls: Calls) -> None:
    # Nothing is said on it: gRPC tells of a stream that ends while it is written to as INTERNAL.
    call = reflection_pb2_grpc.ServerReflectionStub(calls.channel).ServerReflectionInfo()

    answer = await refused(call.read())

    assert answer.code is grpc.StatusCode.UNIMPLEMENTED


# ---- what is not served ----


def multicallable(calls: Calls, method: MethodDescriptor) -> Any:  # Any: one that takes and gives bytes
    """A call of a method with any bytes."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    make = calls.channel.unary_stream if method.server_streaming else calls.channel.unary_unary
    return make(path, lambda request: request, lambda response: response)


async def answer_of(calls: Calls, method: MethodDescriptor) -> grpc.aio.AioRpcError | None:
    """How a call with an empty request is refused; None when it is not."""
    call = multicallable(calls, method)(b"")
    try:
        await (call.read() if method.server_streaming else call)
    except grpc.aio.AioRpcError as error:
        return error
    return None


@pytest.mark.parametrize("name", sorted(NOT_SERVED))
async def test_a_call_that_this_version_does_not_serve_says_so_by_name(
    gateway: Gateway, calls: Calls, name: str
) -> None:
    service, _, method = name.rpartition(".")

    error = await answer_of(calls, SERVICES[service].methods_by_name[method])

    assert error is not None
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert f"{service}/{method}" in (error.details() or "")
    assert gateway.telemetry.counters["faults"] == 0


async def test_every_other_call_is_served(calls: Calls) -> None:
    unserved = []
    for service in SERVICES.values():
        for method in service.methods:
            if method.full_name in NOT_SERVED or method.client_streaming:
                continue
            error = await answer_of(calls, method)
            if error is not None and error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL):
                unserved.append((method.full_name, error.details()))
    assert unserved == []


@pytest.mark.parametrize("path", ["/redflow.api.v1.RunService/NoSuchCall", "/no.such.Service/Call", "/x"])
async def test_a_call_that_does_not_exist_is_unimplemented(gateway: Gateway, calls: Calls, path: str) -> None:
    answer = await refused(calls.channel.unary_unary(path, bytes, bytes)(b""))

    assert answer.code is grpc.StatusCode.UNIMPLEMENTED
    assert gateway.telemetry.counters["faults"] == 0


@pytest.mark.parametrize(
    "data", [b"\xff" * 100, b"\x0a\x03\xff\xfe\xfd", b"GET / HTTP/1.1"], ids=["junk", "text", "http"]
)
async def test_a_request_that_is_no_message_is_refused_and_is_no_fault_of_the_gateway(
    gateway: Gateway, calls: Calls, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    call = calls.channel.unary_unary("/redflow.api.v1.RunService/StartRun", bytes, bytes)

    answer = await refused(call(data))

    assert answer.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)
    assert gateway.telemetry.counters["faults"] == 0
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
    assert await calls.start()
