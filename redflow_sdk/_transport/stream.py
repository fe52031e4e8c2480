"""One session stream: values in, values out."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc

from redflow_sdk._envelopes import Incoming, Outgoing
from redflow_sdk._messages import (
    StepSnapshot,
)
from redflow_sdk._transport.channel import open_channel
from redflow_sdk._transport.incoming import incoming, snapshot
from redflow_sdk._transport.outgoing import outgoing_request
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_sdk.proto.worker.v1 import worker_pb2_grpc

FETCH_TIMEOUT_S: Final = 15.0
FETCH_STEPS: Final = 500


# grpc.aio raises the last one when a stream ends in the middle of a write or read.
BREAKS: Final = (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError)


class BrokenStream(Exception):
    """The stream ended; the session goes on elsewhere, in `retry_delay_s` at the earliest."""

    def __init__(self, message: str, retry_delay_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_delay_s = retry_delay_s


class Stream:
    """An open stream on a channel of its own."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target)
        self._call = worker_pb2_grpc.WorkerServiceStub(self._channel).Session()

    async def write(self, outgoing: Outgoing) -> None:
        """Sends a message. Raises BrokenStream."""
        try:
            await self._call.write(outgoing_request(outgoing))
        except BREAKS as error:
            raise _broken(error) from None

    async def read(self) -> Incoming:
        """The next message. Raises BrokenStream."""
        try:
            response = await self._call.read()
        except BREAKS as error:
            raise _broken(error) from None
        if not isinstance(response, pb.SessionResponse):
            raise BrokenStream("the gateway ended the stream")
        return incoming(response)

    async def fetch(self, lease_token: str, step_name: str) -> StepSnapshot | None:
        """A step whose output was too large for the assignment. Raises BrokenStream."""
        stub = worker_pb2_grpc.WorkerServiceStub(self._channel)
        request = pb.GetStepOutputsRequest(lease_token=lease_token, step_names=[step_name])
        try:
            response = await stub.GetStepOutputs(request, timeout=FETCH_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise _broken(error) from None
        return snapshot(response.steps[0]) if response.steps else None

    async def fetch_all(self, lease_token: str) -> tuple[StepSnapshot, ...]:
        """Every step on record of a run, page by page. Raises BrokenStream."""
        stub = worker_pb2_grpc.WorkerServiceStub(self._channel)
        request = pb.GetStepOutputsRequest(lease_token=lease_token, page_size=FETCH_STEPS)
        steps: list[StepSnapshot] = []
        while True:
            try:
                response = await stub.GetStepOutputs(request, timeout=FETCH_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                raise _broken(error) from None
            steps += map(snapshot, response.steps)
            if not response.next_page_token:
                return tuple(steps)
            request.page_token = response.next_page_token

    async def close(self) -> None:
        """Ends the stream and its connection."""
        self._call.cancel()
        await self._channel.close()


def _broken(error: Exception) -> BrokenStream:
    if isinstance(error, grpc.aio.AioRpcError):
        return BrokenStream(f"{error.code().name}: {error.details()}")
    return BrokenStream(str(error))
