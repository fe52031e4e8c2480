"""One stream on which a client starts runs and waits for the ends of runs: opened when there is something to say, and
again when it breaks. On the io thread.

What becomes of starts it leaves to `Starts`; who waits for an end, and for how long, to who asks.
"""

from __future__ import annotations

import asyncio
import logging
import random
from itertools import islice
from typing import Final

import grpc
from grpc.aio import EOF

from redflow_sdk._transport import convert
from redflow_sdk._transport.channel import closed, refusal_of
from redflow_sdk._transport.starts import (
    MAX_PAUSE_S,
    MESSAGE_RUNS,
    MIN_PAUSE_S,
    Asked,
    Begun,
    Heard,
    Outcome,
    Starts,
)
from redflow_sdk.errors import RedflowError, RunNotFoundError
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.api.v1 import run_service_pb2_grpc

log = logging.getLogger("redflow.client")

MAX_WAITS: Final = 10_000
"""On one stream, as the gateway has it."""
FORBIDDEN: Final = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
"""What no repetition mends."""
NOT_TAKEN: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
"""How a stream ends for a message of ours. For anything else it is opened again: gRPC says INTERNAL, too, when a stream
breaks while it is written to, and proxies say UNIMPLEMENTED.
"""


class RunStream:
    """The starts that are under way, and the runs that somebody waits for, by id."""

    def __init__(self, stub: run_service_pb2_grpc.RunServiceStub) -> None:
        self._stub = stub
        self._starts = Starts(self._wake)
        self._waiting: dict[str, list[Heard]] = {}
        self._run_of: dict[Heard, str] = {}
        self._to_name: dict[str, None] = {}
        self._to_forget: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._is_closed = False
        self._pause_s = MIN_PAUSE_S
        self._keeping: asyncio.Task[None] | None = None

    # ---- what is asked ----

    def start(self, asked: Asked) -> None:
        """Starts a run; tells, once, what became of that, and with `heard` how it has ended."""
        if self._is_closed:
            asked.answered(closed())
            return
        if asked.heard is None or self._has_room:
            self._starts.begin(asked, asked.heard)
        else:
            asked.heard(None)
            self._starts.begin(asked, None)

    def give_up(self, asked: Asked) -> None:
        """Nobody waits any longer, neither for the start nor for the end. What was not sent is not started."""
        if not self._starts.give_up(asked) and asked.heard in self._run_of:
            self.forget(self._run_of[asked.heard], asked.heard)

    @property
    def _has_room(self) -> bool:
        return len(self._waiting) + self._starts.waits < MAX_WAITS

    def want(self, run_id: str, heard: Heard) -> None:
        """Tells, once, how the wait for a run has ended."""
        if self._is_closed:
            heard(closed())
            return
        if run_id not in self._waiting:
            if not self._has_room:
                heard(None)
                return
            self._to_name[run_id] = None
            self._to_forget.pop(run_id, None)
            self._wake()
        self._wait(run_id, heard)

    def _wait(self, run_id: str, heard: Heard) -> None:
        self._waiting.setdefault(run_id, []).append(heard)
        self._run_of[heard] = run_id

    def forget(self, run_id: str, heard: Heard) -> None:
        """Somebody waits no longer."""
        waiting = self._waiting.get(run_id, [])
        if heard in waiting:
            waiting.remove(heard)
            del self._run_of[heard]
            if not waiting:
                del self._waiting[run_id]
                self._to_name.pop(run_id, None)
                self._to_forget[run_id] = None
                self._changed.set()

    def close(self) -> None:
        """Ends the stream, and whatever is waited for."""
        self._is_closed = True
        if self._keeping is not None:
            self._keeping.cancel()
        self._tell_all(closed())

    # ---- what is heard ----

    def _begun(self, begun: Begun) -> None:
        if begun.heard is not None:
            self._wait(begun.run_id, begun.heard)
        elif begun.run_id not in self._waiting:
            # The gateway may wait for it on behalf of somebody who has given up.
            self._to_forget[begun.run_id] = None
            self._changed.set()

    def _tell(self, run_id: str, outcome: Outcome) -> None:
        self._to_name.pop(run_id, None)
        for heard in self._waiting.pop(run_id, ()):
            del self._run_of[heard]
            heard(outcome)

    def _tell_all(self, error: RedflowError) -> None:
        self._starts.tell_all(error)
        for run_id in tuple(self._waiting):
            self._tell(run_id, error)

    # ---- the stream ----

    def _wake(self) -> None:
        self._changed.set()
        if self._keeping is None and not self._is_closed:
            self._keeping = asyncio.create_task(self._keep())
            self._keeping.add_done_callback(self._broke_off)

    def _broke_off(self, keeping: asyncio.Task[None]) -> None:
        """A fault of ours must not end the client."""
        self._keeping = None
        if not keeping.cancelled():
            log.error("the stream of a client broke off", exc_info=keeping.exception())
            asyncio.get_running_loop().call_later(MAX_PAUSE_S, self._wake)

    async def _keep(self) -> None:
        while True:
            while not (self._starts or self._waiting):
                self._changed.clear()
                await self._changed.wait()
            try:
                await self._stream()
            except grpc.aio.AioRpcError as error:
                self._ended(error)
            except (grpc.aio.UsageError, asyncio.InvalidStateError):
                pass  # it broke while something was said
            await asyncio.sleep(random.uniform(self._pause_s / 2, self._pause_s))
            self._pause_s = min(self._pause_s * 2, MAX_PAUSE_S)

    def _ended(self, error: grpc.aio.AioRpcError) -> None:
        refusal = refusal_of(error)
        if error.code() in FORBIDDEN:
            self._tell_all(refusal)
        elif error.code() in NOT_TAKEN:
            self._starts.refused(refusal)
        self._starts.note(refusal)

    async def _stream(self) -> None:
        """Reads and writes until the stream ends. Raises what it ends with."""
        call = self._stub.ExecuteRuns()
        self._starts.stream_opened()
        self._to_name, self._to_forget = dict.fromkeys(self._waiting), {}
        reading = asyncio.create_task(self._read(call))
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            while not reading.done():
                if self._starts.has_message() or self._to_name or self._to_forget:
                    await call.write(self._news())
                else:
                    self._changed.clear()
                    await self._changed.wait()
            reading.result()
        finally:
            call.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _news(self) -> pb.ExecuteRunsRequest:
        named = tuple(islice(self._to_name, MESSAGE_RUNS))
        forgotten = tuple(islice(self._to_forget, MESSAGE_RUNS))
        for run_id in named:
            del self._to_name[run_id]
        for run_id in forgotten:
            del self._to_forget[run_id]
        return pb.ExecuteRunsRequest(starts=self._starts.message(), run_ids=named, forgotten_run_ids=forgotten)

    async def _read(self, call: grpc.aio.StreamStreamCall[pb.ExecuteRunsRequest, pb.ExecuteRunsResponse]) -> None:
        while isinstance(response := await call.read(), pb.ExecuteRunsResponse):
            self._pause_s = MIN_PAUSE_S
            for begun in self._starts.answered(response.starts):
                self._begun(begun)
            if response.starts:
                self._changed.set()  # one that is suspected may have been waited for
            for run in response.runs:
                self._tell(run.run_id, convert.run_of(run))
            for run_id in response.unknown_run_ids:
                self._tell(run_id, RunNotFoundError(f"there is no run {run_id}", "RUN_NOT_FOUND"))
            for run_id in response.untold_run_ids:
                self._tell(run_id, None)
        assert response is EOF
