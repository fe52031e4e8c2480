"""WorkerService: moves messages between a worker's stream and its session; every rule is in the engine.

The handler is the stream's writer. It owns its reader and ends by returning: the reader's pending read then ends with
a UsageError, which is its normal end, and is never cancelled (a cancelled read leaks in grpc.aio).
"""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from grpc.aio import EOF

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_sdk.proto.worker.v1 import worker_pb2_grpc as stubs
from redflow_server.domain.errors import LeaseLost, ProtocolViolation, Refusal, RevisionUnsupported, Unavailable
from redflow_server.domain.session import SessionEnd
from redflow_server.engine.session import WorkerSession
from redflow_server.engine.sessions import Sessions
from redflow_server.engine.steps import Steps
from redflow_server.rpc import convert
from redflow_server.rpc.convert_session import SessionReader, SessionWriter, session_error, snapshot
from redflow_server.rpc.errors import Context
from redflow_server.telemetry import Telemetry

OPEN_TIMEOUT_S: Final = 5.0


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
        try:
            session = await self._opened(context)
        except Refusal as refusal:
            self._telemetry.fault("session open", refusal)
            await context.write(pb.SessionResponse(error=session_error(_end_of(refusal))))
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

    async def _opened(self, context: Context) -> WorkerSession | None:
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
        request.ClearField("open")
        session.receive(self._reader.message(request))
        return session

    async def _read(self, context: Context, session: WorkerSession) -> None:
        """Passes on what the worker says, until one of the sides ends the session."""
        try:
            while not session.is_closed:
                request = await context.read()
                if request is EOF:
                    session.outbox.end()
                    return
                session.receive(self._reader.message(request))
        except Refusal as refusal:
            self._telemetry.fault("session", refusal)
            session.outbox.end(_end_of(refusal))
        except (grpc.aio.UsageError, grpc.RpcError, asyncio.InvalidStateError):
            session.outbox.end()
        except Exception as error:  # a fault in one session must end that session and be seen
            fault_id = self._telemetry.fault("session", error)
            session.outbox.end(SessionEnd("INTERNAL", f"fault {fault_id}", retry_delay_ms=1000))

    async def _write(self, context: Context, session: WorkerSession) -> None:
        while True:
            message = await session.outbox.take()
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
    is_permanent = not isinstance(refusal, (Unavailable, ProtocolViolation, LeaseLost))
    delay_ms = refusal.retry_delay_ms if isinstance(refusal, Unavailable) else 1000
    if isinstance(refusal, RevisionUnsupported):
        delay_ms = 0
    return SessionEnd(refusal.reason, str(refusal), is_permanent, delay_ms)


def _retrieve(future: asyncio.Future[object]) -> None:
    """The stream has ended before its first message: the read's fault is no news."""
    if not future.cancelled():
        future.exception()
