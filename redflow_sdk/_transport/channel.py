"""Channels, and unary calls over them: repeated while the gateway is away, refused with the SDK's exceptions."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Mapping
from typing import Final, TypeVar

import grpc

from redflow_sdk import errors
from redflow_sdk.proto.v1 import status_pb2

Request = TypeVar("Request")
Response = TypeVar("Response")

DEFAULT_TARGET: Final = "localhost:7379"
SCHEMES: Final = ("dns:", "unix:", "unix-abstract:", "ipv4:", "ipv6:", "vsock:", "xds:")
HOST_AND_PORT: Final = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")

OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.max_send_message_length", 16 * 1024 * 1024),
    # Repeating is ours: by reason, with the same request id.
    ("grpc.enable_retries", 0),
    # After a restart of the gateway, connect again soon.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

ERRORS: Final[Mapping[str, type[errors.RedflowError]]] = {
    "INVALID_INPUT": errors.InvalidInputError,
    "PAYLOAD_TOO_LARGE": errors.InvalidInputError,
    "RUN_NOT_FOUND": errors.RunNotFoundError,
    "WORKFLOW_NOT_FOUND": errors.UnknownWorkflowError,
    "TOKEN_NOT_FOUND": errors.TokenNotFoundError,
    "NOT_WAITING": errors.NotWaitingError,
    "IDEMPOTENCY_KEY_REUSED": errors.IdempotencyKeyReusedError,
    "STORE_UNAVAILABLE": errors.UnavailableError,
    "GATEWAY_DRAINING": errors.UnavailableError,
}


def target_or_default(target: str | None) -> str:
    """The gateway to talk to: the argument, else REDFLOW_TARGET, else this machine's.

    Raises InvalidInputError for what is neither host:port nor a name of gRPC's with a scheme
    (https://grpc.github.io/grpc/core/md_doc_naming.html).
    """
    chosen = target or os.environ.get("REDFLOW_TARGET", "").strip() or DEFAULT_TARGET
    if not isinstance(chosen, str) or not (chosen.startswith(SCHEMES) or HOST_AND_PORT.fullmatch(chosen)):
        raise errors.InvalidInputError(f"target must be host:port; got {chosen!r}")
    return chosen


def open_channel(target: str) -> grpc.aio.Channel:
    """A channel of its own connection."""
    # Channels with the same options share a connection; a worker's session must not queue behind calls.
    unique = (("redflow.channel", random.getrandbits(30)), ("grpc.use_local_subchannel_pool", 1))
    return grpc.aio.insecure_channel(target, options=(*OPTIONS, *unique))


async def call(
    method: grpc.aio.UnaryUnaryMultiCallable[Request, Response], request: Request, timeout: float
) -> Response:
    """Calls until it is answered or the time is over. The request must be safe to repeat.

    Raises the SDK's exception of the refusal, and UnavailableError when there is no gateway in time.
    """
    patience = Patience(timeout)
    while True:
        try:
            return await method(request, timeout=max(patience.left, 0.001))
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            if not isinstance(refusal, errors.UnavailableError) or not await patience.pause():
                raise refusal from None
        except grpc.aio.UsageError:
            raise closed() from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise closed() from None


class Patience:
    """The time that is left for tries, and the pauses between them, each longer than the one before."""

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout
        self._delay = 0.05

    @property
    def left(self) -> float:
        """Seconds."""
        return self._deadline - self._loop.time()

    async def pause(self) -> bool:
        """Waits before another try; False at once when there is no time for one."""
        if self.left <= self._delay:
            return False
        await asyncio.sleep(random.uniform(self._delay / 2, self._delay))
        self._delay = min(self._delay * 2, 1.0)
        return True


def closed() -> errors.UnavailableError:
    """What is raised to those who wait for an answer on a channel that is closed."""
    return errors.UnavailableError("the client was closed", "CANCELLED")


def error_of(reason: str, message: str) -> errors.RedflowError:
    """The SDK's exception for a refusal, by its stable reason."""
    return ERRORS.get(reason, errors.RefusedError)(message, reason)


def refusal_of(error: grpc.aio.AioRpcError) -> errors.RedflowError:
    """The SDK's exception for a failed call, by its stable reason."""
    message = error.details() or ""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(bytes(value))  # type: ignore[arg-type]  # under such a key it is bytes
            for detail in status.details:
                if detail.type_url.endswith("google.rpc.ErrorInfo"):
                    reason = status_pb2.ErrorInfo.FromString(detail.value).reason
                    return error_of(reason, message)
    code = error.code()
    # A gateway that stops cancels what it has no time to answer.
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return errors.UnavailableError(f"the gateway does not answer: {message}", code.name)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # gRPC itself refuses messages over its limit.
        return errors.InvalidInputError(f"the message is too large: {message}", "PAYLOAD_TOO_LARGE")
    return errors.RefusedError(message, code.name)
