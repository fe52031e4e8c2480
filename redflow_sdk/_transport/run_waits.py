"""One stream on which a client waits for the ends of runs: opened when there is one to wait for, and again when it
breaks. On the io thread.

Who waits, and for how long, it leaves to who asks.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import islice
from typing import Final

import grpc
from grpc.aio import EOF

from redflow_sdk._transport import convert
from redflow_sdk.errors import RedflowError, RunNotFoundError, UnavailableError
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.api.v1 import run_service_pb2_grpc
from redflow_sdk.records import Run

Outcome = Run | RedflowError | None
"""How a wait has ended; None when the gateway does not serve the stream, so that it is to be asked by a call."""
Heard = Callable[[Outcome], None]

MESSAGE_RUNS: Final = 1000
MIN_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0


class RunWaits:
    """The runs that somebody waits for, by id."""

    def __init__(self, stub: run_service_pb2_grpc.RunServiceStub) -> None:
        self._stub = stub
        self._waiting: dict[str, list[Heard]] = {}
        self._to_name: dict[str, None] = {}
        self._to_forget: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._pause_s = MIN_PAUSE_S
        self._is_served = True
        self._keeping: asyncio.Task[None] | None = None

    def want(self, run_id: str, heard: Heard) -> None:
        """Tells, once, how the wait for a run has ended."""
        if not self._is_served:
            heard(None)
            return
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        if run_id not in self._waiting:
            self._to_name[run_id] = None
            self._to_forget.pop(run_id, None)
            self._changed.set()
        self._waiting.setdefault(run_id, []).append(heard)

    def forget(self, run_id: str, heard: Heard) -> None:
        """Somebody waits no longer."""
        waiting = self._waiting.get(run_id, [])
        if heard in waiting:
            waiting.remove(heard)
            if not waiting:
                del self._waiting[run_id]
                self._to_name.pop(run_id, None)
                self._to_forget[run_id] = None
                self._changed.set()

    def close(self) -> None:
        """Ends the stream, and every wait."""
        if self._keeping is not None:
            self._keeping.cancel()
        for run_id in tuple(self._waiting):
            self._tell(run_id, UnavailableError("the client was closed", "CANCELLED"))

    def _tell(self, run_id: str, outcome: Outcome) -> None:
        self._to_name.pop(run_id, None)
        for heard in self._waiting.pop(run_id, ()):
            heard(outcome)

    # ---- the stream ----

    async def _keep(self) -> None:
        while self._is_served:
            await self._until_wanted()
            try:
                await self._stream()
            except grpc.aio.AioRpcError as error:
                self._is_served = error.code() is not grpc.StatusCode.UNIMPLEMENTED
            except (grpc.aio.UsageError, asyncio.InvalidStateError):
                pass  # it broke while something was said
            await asyncio.sleep(random.uniform(self._pause_s / 2, self._pause_s) if self._is_served else 0)
            self._pause_s = min(self._pause_s * 2, MAX_PAUSE_S)
        for run_id in tuple(self._waiting):
            self._tell(run_id, None)

    async def _until_wanted(self) -> None:
        while not self._waiting:
            self._changed.clear()
            await self._changed.wait()

    async def _stream(self) -> None:
        """Reads and writes until the stream ends. Raises what it ends with."""
        call = self._stub.WaitRuns()
        self._to_name, self._to_forget = dict.fromkeys(self._waiting), {}
        reading = asyncio.create_task(self._read(call))
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            while not reading.done():
                if self._to_name or self._to_forget:
                    await call.write(self._news())
                else:
                    self._changed.clear()
                    await self._changed.wait()
            reading.result()
        finally:
            call.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _news(self) -> pb.WaitRunsRequest:
        named = tuple(islice(self._to_name, MESSAGE_RUNS))
        for run_id in named:
            del self._to_name[run_id]
        forgotten, self._to_forget = tuple(self._to_forget), {}
        return pb.WaitRunsRequest(run_ids=named, forgotten_run_ids=forgotten)

    async def _read(self, call: grpc.aio.StreamStreamCall[pb.WaitRunsRequest, pb.WaitRunsResponse]) -> None:
        while isinstance(response := await call.read(), pb.WaitRunsResponse):
            self._pause_s = MIN_PAUSE_S
            for run in response.runs:
                self._tell(run.run_id, convert.run_of(run))
            for run_id in response.unknown_run_ids:
                self._tell(run_id, RunNotFoundError(f"there is no run {run_id}", "RUN_NOT_FOUND"))
        assert response is EOF
