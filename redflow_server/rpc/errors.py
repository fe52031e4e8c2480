"""Refusals on the wire: the only place that knows status codes.

A refusal travels as its code, its message, and one ErrorInfo with its stable reason, in `grpc-status-details-bin`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from redflow_sdk.proto.v1 import status_pb2
from redflow_server.domain import errors
from redflow_server.rpc.convert import duration
from redflow_server.telemetry import Telemetry

CODES: Final[dict[type[errors.Refusal], grpc.StatusCode]] = {
    errors.InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    errors.PayloadTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    errors.RunNotFound: grpc.StatusCode.NOT_FOUND,
    errors.WorkflowNotFound: grpc.StatusCode.NOT_FOUND,
    errors.IdempotencyKeyReused: grpc.StatusCode.ALREADY_EXISTS,
    errors.TokenNotFound: grpc.StatusCode.NOT_FOUND,
    errors.NotWaiting: grpc.StatusCode.FAILED_PRECONDITION,
    errors.LeaseLost: grpc.StatusCode.ABORTED,
    errors.ResetNotAllowed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.RevisionUnsupported: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ProtocolViolation: grpc.StatusCode.INVALID_ARGUMENT,
    errors.SessionSilent: grpc.StatusCode.ABORTED,
    errors.StoreFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TooManyWaiters: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.InternalFault: grpc.StatusCode.INTERNAL,
    errors.PrefixTaken: grpc.StatusCode.FAILED_PRECONDITION,
    errors.RedisUnfit: grpc.StatusCode.FAILED_PRECONDITION,
    errors.SessionSuperseded: grpc.StatusCode.ABORTED,
    errors.StoreUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.GatewayDraining: grpc.StatusCode.UNAVAILABLE,
}

ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
RETRY_INFO: Final = "type.googleapis.com/google.rpc.RetryInfo"
DOMAIN: Final = "redflow"

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # Any: any request, any response
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # Any: as above; not generic at run time


def details(refusal: errors.Refusal) -> bytes:
    """The trailer of a refusal."""
    status = status_pb2.Status(code=CODES[type(refusal)].value[0], message=str(refusal))
    info = status_pb2.ErrorInfo(reason=refusal.reason, domain=DOMAIN, metadata=refusal.details)
    status.details.append(AnyMessage(type_url=ERROR_INFO, value=info.SerializeToString()))
    if isinstance(refusal, errors.Unavailable):
        retry = status_pb2.RetryInfo(retry_delay=duration(refusal.retry_delay_ms))
        status.details.append(AnyMessage(type_url=RETRY_INFO, value=retry.SerializeToString()))
    return status.SerializeToString()


class Answering(grpc.aio.ServerInterceptor):
    """Calls whose refusals become statuses, and whose faults are logged once, with an id for the caller.

    A call that this version does not serve is answered UNIMPLEMENTED by name.
    """

    def __init__(self, telemetry: Telemetry, max_message_bytes: int) -> None:
        self._telemetry = telemetry
        self._max_message_bytes = max_message_bytes
        self._handlers: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of a call, as it answers."""
        name = handler_call_details.method
        if name not in self._handlers:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._handlers[name] = self._answering(name, handler)
        return self._handlers[name]

    def _answering(self, name: str, handler: Handler) -> Handler:
        method = handler.unary_unary or handler.unary_stream or handler.stream_stream
        is_served = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
        if not is_served:
            return _with(handler, _unserved(name))
        if handler.unary_unary is None:
            return handler if handler.stream_stream is None else self._streaming(name, handler)
        return _with(handler, self._answer(name, handler))

    def _streaming(self, name: str, handler: Handler) -> Handler:
        """The stream, whose `read` raises ProtocolViolation for what is no message of it."""
        stream: Callable[..., object] | None = handler.stream_stream
        assert stream is not None
        read = _reader(handler, self._max_message_bytes)
        # One that writes by the context answers in band.
        serve = self._yielding(name, stream) if inspect.isasyncgenfunction(stream) else stream
        return grpc.stream_stream_rpc_method_handler(serve, read, handler.response_serializer)

    def _yielding(
        self, name: str, stream: Callable[..., AsyncGenerator[object]]
    ) -> Callable[[object, Context], AsyncIterator[object]]:
        async def call(requests: object, context: Context) -> AsyncIterator[object]:
            async with self._refusing(name, context), aclosing(stream(requests, context)) as responses:
                async for response in responses:
                    yield response

        return call

    def _answer(self, name: str, handler: Handler) -> Callable[[bytes, Context], Awaitable[object]]:
        method: Callable[..., Awaitable[object]] | None = handler.unary_unary
        read, limit_bytes = handler.request_deserializer, self._max_message_bytes
        assert method is not None and read is not None

        async def call(raw: bytes, context: Context) -> object:
            async with self._refusing(name, context):
                if len(raw) > limit_bytes:
                    raise errors.PayloadTooLarge("the message", limit_bytes, len(raw))
                try:
                    request = read(raw)
                except DecodeError as error:
                    raise errors.InvalidInput("the message", "must be the protobuf of the call", f"{error}") from error
                return await method(request, context)

        return call

    @asynccontextmanager
    async def _refusing(self, name: str, context: Context) -> AsyncIterator[None]:
        """What is raised within this is the caller's answer."""
        try:
            yield
        except errors.Refusal as refusal:
            self._telemetry.fault(name, refusal)
            trailer = (("grpc-status-details-bin", details(refusal)),)
            await context.abort(CODES[type(refusal)], str(refusal), trailer)
        except Exception as error:  # the boundary: whatever else went wrong is INTERNAL to the caller
            fault_id = self._telemetry.fault(name, error)
            await context.abort(grpc.StatusCode.INTERNAL, f"fault {fault_id}")


def _unserved(name: str) -> Callable[[object, Context], Awaitable[None]]:
    async def call(request: object, context: Context) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"this version of the gateway does not serve {name}")

    return call


def _with(handler: Handler, method: Callable[..., Awaitable[object]]) -> Handler:
    """The call, answered by a method that gets the message as it came."""
    make = grpc.unary_unary_rpc_method_handler if handler.unary_unary else grpc.unary_stream_rpc_method_handler
    return make(method, None, handler.response_serializer)


def _reader(handler: Handler, limit_bytes: int) -> Callable[[bytes], object]:
    decode = handler.request_deserializer
    assert decode is not None

    def read(raw: bytes) -> object:
        if len(raw) > limit_bytes:
            raise errors.ProtocolViolation(f"a message must be at most {limit_bytes} bytes; got {len(raw)}")
        try:
            return decode(raw)
        except DecodeError as error:
            raise errors.ProtocolViolation(f"a message must be the protobuf of the stream: {error}") from error

    return read
