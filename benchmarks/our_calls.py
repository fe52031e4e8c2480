"""The calls of a client of ours: the SDK's for single ones, the wire's for batches, which the SDK does not have."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import grpc

from benchmarks.calling import Calls
from benchmarks.workflows import first_of_three, noop, ten_steps
from redflow_sdk import Client
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.api.v1 import run_service_pb2_grpc

BATCH: Final = 1000


@asynccontextmanager
async def calls() -> AsyncIterator[Calls]:
    """By kind."""
    async with Client() as client:
        # Not of grpc.aio: a process has one loop for that, which is the SDK's.
        channel = grpc.insecure_channel(os.environ["REDFLOW_TARGET"])
        service = run_service_pb2_grpc.RunServiceStub(channel)

        async def enqueue(number: int) -> None:
            await client.start(noop, number)

        async def fill(numbers: range) -> None:
            for first in range(numbers.start, numbers.stop, BATCH):
                batch = range(first, min(first + BATCH, numbers.stop))
                answer = service.BatchStartRuns(batch_of(batch), timeout=60)
                assert all(result.HasField("started") for result in answer.results)

        async def roundtrip(number: int) -> None:
            assert await client.execute(noop, number) == number

        async def steps(number: int) -> None:
            assert await client.execute(ten_steps, number) == number + 10

        async def children(number: int) -> None:
            assert await client.execute(first_of_three, number) == number + 3

        yield {"enqueue": enqueue, "fill": fill, "roundtrip": roundtrip, "steps": steps, "children": children}
        channel.close()


def batch_of(numbers: range) -> pb.BatchStartRunsRequest:
    """No-op runs in one call."""
    request = pb.BatchStartRunsRequest()
    for number in numbers:
        run = request.runs.add(workflow=noop.name, queue=noop.queue, typed=True)
        run.input.data = str(number).encode()
    return request
