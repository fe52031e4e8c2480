"""A gateway that does what a test tells it, on loopback, and keeps a log of all that the worker says.

By itself it behaves as a sound gateway with short times: it opens sessions, holds what is listed, answers heartbeats
and items. `script` says so, part by part; a test replaces the parts it is about, at any time, and sends whatever else
it wants. It runs in threads of its own, so a program under test that blocks does not stop it. It knows the protocol
and no SDK: the program under test may be in any language.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from redflow_sdk.proto.v1 import payload_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_sdk.proto.worker.v1 import worker_pb2_grpc
from tests.sdk.listener import Listener
from tests.sdk.messages import milliseconds, ok, verdict
from tests.sdk.wire_log import Heard, Item, WireLog, items_of


@dataclass(frozen=True)
class Times:
    """The times the gateway dictates. The lease is long enough for a busy machine, the beats are short for the test."""

    lease_ms: float = 2400
    beat_ms: float = 200
    fence_margin_ms: float = 480
    silence_ms: float = 2000
    cancel_grace_ms: float = 1000

    def message(self) -> pb.Timing:
        return pb.Timing(
            lease=milliseconds(self.lease_ms),
            heartbeat_interval=milliseconds(self.beat_ms),
            ack_timeout=milliseconds(self.lease_ms / 2),
            fence_margin=milliseconds(self.fence_margin_ms),
            silence_timeout=milliseconds(self.silence_ms),
            cancel_grace=milliseconds(self.cancel_grace_ms),
        )


@dataclass
class Script:
    """What the gateway answers by itself; None is no answer. Called in the gateway's threads."""

    open: Callable[[pb.OpenSession], pb.SessionResponse | None]
    item: Callable[[Item], pb.ItemResult | None]
    beat: Callable[[pb.Heartbeat], pb.HeartbeatReply | None]
    drain: Callable[[], pb.SessionResponse | None]
    outputs: Callable[[pb.GetStepOutputsRequest], pb.GetStepOutputsResponse]


@dataclass(frozen=True)
class End:
    """How a stream ends: well, or with a status."""

    code: grpc.StatusCode | None = None
    detail: str = ""


class ScriptedSession:
    """One stream of a worker."""

    def __init__(self, number: int, context: grpc.ServicerContext) -> None:
        self.number = number
        self.script: Script | None = None
        """Its own script, instead of the gateway's."""
        self.is_muted = False
        self.has_ended = threading.Event()
        self._context = context
        self._outbox: queue.SimpleQueue[pb.SessionResponse | End] = queue.SimpleQueue()
        if not context.add_callback(self._over):
            self._over()

    def send(self, response: pb.SessionResponse) -> None:
        """Says something to the worker, unless the session is muted."""
        if not self.is_muted:
            self._outbox.put(response)

    def mute(self) -> None:
        """Half-open from now on: the gateway reads, and nothing it says arrives."""
        self.is_muted = True

    def end(self) -> None:
        """Ends the stream well, as a gateway does that has answered everything."""
        self._outbox.put(End())

    def cut(self, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, detail: str = "the stream is cut") -> None:
        """Ends the stream with a status."""
        self._outbox.put(End(code, detail))

    def responses(self) -> Iterator[pb.SessionResponse]:
        """What goes out, until the end."""
        while True:
            next_one = self._outbox.get()
            if isinstance(next_one, pb.SessionResponse):
                yield next_one
            elif next_one.code is None:
                return
            else:
                self._context.abort(next_one.code, next_one.detail)

    def _over(self) -> None:
        self.has_ended.set()
        self._outbox.put(End())


class ScriptedGateway(Listener, worker_pb2_grpc.WorkerServiceServicer):
    """The gateway, and what a test tells it and asks it."""

    def __init__(self, times: Times | None = None, *, max_payload_bytes: int = 1024 * 1024) -> None:
        super().__init__(worker_pb2_grpc.add_WorkerServiceServicer_to_server)
        self.times = times or Times()
        self.log = WireLog()
        self.sessions: list[ScriptedSession] = []
        self._max_payload_bytes = max_payload_bytes
        self._runs = itertools.count(1)
        self.behave()

    @property
    def session(self) -> ScriptedSession:
        """The newest session."""
        return self.sessions[-1]

    def behave(self) -> None:
        """Answers as a sound gateway from now on."""
        self.script = Script(
            open=lambda opening: pb.SessionResponse(opened=self.opened(opening)),
            item=ok,
            beat=lambda beat: pb.HeartbeatReply(sequence=beat.sequence),
            drain=lambda: pb.SessionResponse(drain_ack=pb.DrainAck()),
            outputs=lambda request: pb.GetStepOutputsResponse(),
        )

    # ---- to the worker ----

    def opened(self, opening: pb.OpenSession, verdicts: Sequence[pb.LeaseVerdict] | None = None) -> pb.SessionOpened:
        """The answer to an opening: every lease is held, unless verdicts are given."""
        if verdicts is None:
            verdicts = [verdict(lease.lease_token, pb.LEASE_VERDICT_KIND_HELD) for lease in opening.held_leases]
        return pb.SessionOpened(
            session_id=f"session-{len(self.sessions)}",
            gateway_id="scripted",
            revision=1,
            limits=pb.Limits(
                max_payload_bytes=self._max_payload_bytes,
                max_message_bytes=4 * 1024 * 1024,
                max_items_per_message=256,
                max_name_bytes=256,
                max_metadata_bytes=8192,
                max_steps=10_000,
                max_waits=100,
            ),
            timing=self.times.message(),
            lease_verdicts=verdicts,
        )

    def assign(
        self,
        workflow: str,
        input: payload_pb2.Payload | None = None,
        *,
        token: str | None = None,
        **fields: Any,  # Any: fields of the message
    ) -> str:
        """Sends a run in the newest session; gives its lease token."""
        assignment = self.assignment(workflow, input, token=token, **fields)
        self.session.send(pb.SessionResponse(assignments=[assignment]))
        return assignment.lease_token

    def assignment(
        self,
        workflow: str,
        input: payload_pb2.Payload | None = None,
        *,
        token: str | None = None,
        **fields: Any,  # Any: as above
    ) -> pb.Assignment:
        """A run of a workflow, under a token of its own unless one is given."""
        number = next(self._runs)
        counts: dict[str, Any] = {"attempt": 1, "max_attempts": 1, "delivery_count": 1}  # Any: as above
        settings = {"run_id": f"run-{number}", "assignment_kind": pb.ASSIGNMENT_KIND_RUN, **counts}
        return pb.Assignment(
            lease_token=token or f"run-{number}.token-{number}",
            workflow=workflow,
            queue="default",
            lease_duration=milliseconds(self.times.lease_ms),
            input=input,
            **{**settings, **fields},
        )

    def send(self, **fields: Any) -> None:  # Any: fields of the message
        """Says something in the newest session."""
        self.session.send(pb.SessionResponse(**fields))

    def answer(self, result: pb.ItemResult) -> None:
        """Answers an item, in the newest session."""
        self.send(item_results=[result])

    # ---- from the worker ----

    def Session(
        self, request_iterator: Iterable[pb.SessionRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.SessionResponse]:
        session = ScriptedSession(len(self.sessions) + 1, context)
        self.sessions.append(session)
        name = f"scripted-session-{session.number}"
        threading.Thread(target=self._read, args=(session, request_iterator), name=name, daemon=True).start()
        yield from session.responses()

    def GetStepOutputs(
        self, request: pb.GetStepOutputsRequest, context: grpc.ServicerContext
    ) -> pb.GetStepOutputsResponse:
        self.log.fetches.append(Heard(time.monotonic(), 0, request))
        return self.script.outputs(request)

    def _read(self, session: ScriptedSession, requests: Iterable[pb.SessionRequest]) -> None:
        try:
            for request in requests:
                self.log.add(session.number, request)
                self._respond(session, request)
        except Exception:  # gRPC's way to say that the stream is over is an exception without a type of its own
            if not session.has_ended.wait(5):
                raise

    def _respond(self, session: ScriptedSession, request: pb.SessionRequest) -> None:
        script = session.script or self.script
        if request.HasField("open") and (response := script.open(request.open)) is not None:
            session.send(response)
        if request.HasField("heartbeat") and (reply := script.beat(request.heartbeat)) is not None:
            session.send(pb.SessionResponse(heartbeat_reply=reply))
        results = [result for item in items_of(request) if (result := script.item(item)) is not None]
        if results:
            session.send(_answers(results))
        if request.HasField("drain") and (response := script.drain()) is not None:
            session.send(response)
        if request.HasField("close"):
            session.end()


def _answers(results: Sequence[pb.ItemResult]) -> pb.SessionResponse:
    """Answers as a gateway writes them: those with nothing to add by their number alone."""
    response = pb.SessionResponse()
    for result in results:
        if result == pb.ItemResult(request_id=result.request_id, status=pb.ITEM_STATUS_OK):
            response.ok_request_ids.append(result.request_id)
        else:
            response.item_results.append(result)
    return response
