"""Asks a gateway from outside whether it takes workers: what its health service says, as any orchestrator would."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2

from redflow_server.rpc.server import WORKER_SERVICE


async def is_serving(target: str, timeout_s: float) -> bool:
    """Whether Redis answers, the loops run, and it does not drain. Raises ConnectionError when there is no answer."""
    async with grpc.aio.insecure_channel(target) as channel:
        request = health_pb2.HealthCheckRequest(service=WORKER_SERVICE)
        try:
            response = await _check(channel)(request, timeout=timeout_s)
        except grpc.RpcError as error:
            what = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            raise ConnectionError(f"the gateway at {target} does not answer: {what}") from error
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


def _check(
    channel: grpc.aio.Channel,
) -> grpc.aio.UnaryUnaryMultiCallable[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]:
    return channel.unary_unary(
        f"/{health.SERVICE_NAME}/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
