"""A stream of RunService.ExecuteRuns, as a caller has it that knows only the generated stubs."""

from __future__ import annotations

import asyncio
from typing import Any

from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import payload_pb2, run_pb2
from tests.rpc.calls import Calls

WITHIN_S = 5.0
Fields = Any  # Any: whatever the message takes


class RunStream:
    """A caller's stream."""

    def __init__(self, calls: Calls) -> None:
        self.call = calls.runs.ExecuteRuns()
        self._left: list[tuple[str, bytes | None]] = []

    async def start(self, number: int, **fields: Fields) -> None:
        """Starts a run and does not wait for it."""
        await self.call.write(pb.ExecuteRunsRequest(starts=[_a_start(number, fields)]))

    async def execute(self, number: int, **fields: Fields) -> None:
        """Starts a run and waits for it."""
        await self.call.write(pb.ExecuteRunsRequest(starts=[_a_start(number, fields, wait=True)]))

    async def answers(self, count: int = 1) -> list[pb.StartAnswer]:
        """The answers to so many starts, while no run ends."""
        found: list[pb.StartAnswer] = []
        while len(found) < count:
            response = await self.read()
            assert not response.runs
            found += response.starts
        return found

    async def executed(self) -> tuple[pb.StartAnswer, run_pb2.Run]:
        """The answer to the only start that is waited for, and its run, which come in this order."""
        first = await self.read()
        [answer] = first.starts
        [run] = first.runs or (await self.read()).runs
        return answer, run

    async def want(self, *run_ids: str) -> None:
        await self.call.write(pb.ExecuteRunsRequest(run_ids=run_ids))

    async def forget(self, *run_ids: str) -> None:
        await self.call.write(pb.ExecuteRunsRequest(forgotten_run_ids=run_ids))

    async def read(self) -> pb.ExecuteRunsResponse:
        response = await asyncio.wait_for(self.call.read(), WITHIN_S)
        assert isinstance(response, pb.ExecuteRunsResponse), "the stream has ended"
        return response

    async def ended(self, count: int) -> list[str]:
        """The ids of so many runs, in the order in which they were told."""
        found: list[str] = []
        while len(found) < count:
            found += [run.run_id for run in (await self.read()).runs]
        return found


def _a_start(number: int, fields: Fields, *, wait: bool = False) -> pb.NumberedStart:
    settings = {"workflow": "w", "queue": "q", "input": payload_pb2.Payload(data=b"{}"), **fields}
    return pb.NumberedStart(number=number, run=pb.StartRunRequest(**settings), wait=wait)
