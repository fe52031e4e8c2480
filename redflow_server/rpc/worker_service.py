"""WorkerService: moves messages between a worker's stream and its session; every rule is in the engine.

The handler is the stream's writer. It owns its reader and ends by returning: the reader's pending read then ends with
a UsageError, which is its normal end, and is never cancelled (a cancelled read leaks in grpc.aio).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from typing import Final, TypeVar

import grpc
from grpc.aio import EOF

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_sdk.proto.worker.v1 import worker_pb2_grpc as stubs
from redflow_server.domain.errors import (
    InvalidInput,
    PayloadTooLarge,
    ProtocolViolation,
    Refusal,
    RevisionUnsupported,
    SessionSuperseded,
    Unavailable,
)
from redflow_server.domain.session import SessionEnd
from redflow_server.engine.session import WorkerSession
from redflow_server.engine.sessions import Sessions
from redflow_server.engine.steps import Steps
from redflow_server.rpc import convert
from redflow_server.rpc.errors import Context
from redflow_server.rpc.session_reader import SessionReader
from redflow_server.rpc.session_writer import SessionWriter, session_error, snapshot
from redflow_server.telemetry import Telemetry

T = TypeVar("T")

OPEN_TIMEOUT_S: Final = 5.0
RETRY_DELAY_MS: Final = 1000
PERMANENT: Final = (RevisionUnsupported, SessionSuperseded, InvalidInput, PayloadTooLarge)
"""What no repetition mends. After any other refusal a worker asks again: it may be all that drains a full store."""


class WorkerService(stubs.WorkerServiceServicer):
    """Worker sessions."""

    def __init__(
        self, sessions: Sessions, steps: Steps, reader: SessionReader, writer: SessionWriter, telemetry: Telemetry
    ) -> None:
        self._sessions = sessions
        self._steps = steps
        self._reader = reader
        self._writer = writer
        self._telemetry = telemetry
        self._readers: set[asyncio.Task[None]] = set()

    async def Session(  # type: ignore[override]  # reads and writes by the context, not by iterators
        self, request_iterator: object, context: Context
    ) -> None:
        """One session, from its opening to its end."""
        session = await self._until_its_end("session open", self._open(context))
        if isinstance(session, SessionEnd):
            with suppress(grpc.aio.InternalError):  # the connection broke meanwhile
                await context.write(pb.SessionResponse(error=session_error(session)))
            return
        if session is None:
            return
        reading = asyncio.create_task(self._read(context, session))
        self._readers.add(reading)
        reading.add_done_callback(self._readers.discard)
        try:
            await self._write(context, session)
        finally:
            self._sessions.close(session)

    async def _until_its_end(self, where: str, work: Coroutine[None, None, T]) -> T | SessionEnd | None:
        """What the work returns, or with what the session has to end: None when the stream has ended by itself."""
        try:
            return await work
        except Refusal as refusal:
            self._telemetry.fault(where, refusal)
            return _end_of(refusal)
        except (grpc.aio.UsageError, grpc.RpcError, asyncio.InvalidStateError):
            return None
        except Exception as error:  # a fault in one session must end that session and be seen; its worker comes again
            fault_id = self._telemetry.fault(where, error)
            return SessionEnd("INTERNAL", f"fault {fault_id}", retry_delay_ms=RETRY_DELAY_MS)

    async def _open(self, context: Context) -> WorkerSession | None:
        """The session of the first message; None when the stream ends without one."""
        reading = asyncio.ensure_future(context.read())
        self._readers.add(reading)
        reading.add_done_callback(self._readers.discard)
        done, _ = await asyncio.wait([reading], timeout=OPEN_TIMEOUT_S)
        if not done:
            reading.add_done_callback(_retrieve)
            raise ProtocolViolation(f"no open within {OPEN_TIMEOUT_S:.0f} s")
        request = reading.result()
        if request is EOF:
            return None
        if not request.HasField("open"):
            raise ProtocolViolation("the first message must carry open")
        session = await self._sessions.open(self._reader.opening(request.open))
        with ExitStack() as unless_received:
            unless_received.callback(self._sessions.close, session)
            request.ClearField("open")
            session.receive(self._reader.message(request))
            unless_received.pop_all()
        return session

    async def _read(self, context: Context, session: WorkerSession) -> None:
        """Passes on what the worker says, until one of the sides ends the session."""
        session.send_queue.end(await self._until_its_end("session", self._receive(context, session)))

    async def _receive(self, context: Context, session: WorkerSession) -> None:
        while not session.is_closed and (request := await context.read()) is not EOF:
            session.receive(self._reader.message(request))

    async def _write(self, context: Context, session: WorkerSession) -> None:
        while True:
            message = await session.send_queue.take()
            response = self._writer.message(message)
            if response.ByteSize():
                try:
                    await context.write(response)
                except grpc.aio.InternalError:
                    # The connection broke meanwhile. The worker says again what was not answered.
                    return
            if message.end is not None:
                return

    async def GetStepOutputs(self, request: pb.GetStepOutputsRequest, context: Context) -> pb.GetStepOutputsResponse:
        page = await self._steps.outputs(
            request.lease_token,
            tuple(request.step_names),
            convert.page_size(request.page_size),
            convert.number_of(request.page_token) or 0,
        )
        return pb.GetStepOutputsResponse(
            steps=map(snapshot, page.steps), next_page_token=convert.page_token(page.next_offset)
        )


def _end_of(refusal: Refusal) -> SessionEnd:
    if isinstance(refusal, PERMANENT):
        return SessionEnd(refusal.reason, str(refusal), is_permanent=True)
    delay_ms = refusal.retry_delay_ms if isinstance(refusal, Unavailable) else RETRY_DELAY_MS
    return SessionEnd(refusal.reason, str(refusal), retry_delay_ms=delay_ms)


def _retrieve(future: asyncio.Future[object]) -> None:
    """The stream has ended before its first message: the read's fault is no news."""
    if not future.cancelled():
        future.exception()
