"""A run service that answers what a test tells it, on loopback, and keeps every call: the other end of a client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.api.v1 import run_service_pb2_grpc
from redflow_sdk.proto.v1 import run_pb2, status_pb2
from tests.sdk.listener import Listener

Message = Any  # Any: the request or response of some call
Script = Callable[[Message], Message]

AT: Final = Timestamp(seconds=1_700_000_000)


@dataclass(frozen=True)
class Call:
    """A call that came: its name, its request, and when (seconds of the monotonic clock)."""

    name: str
    request: Message
    at: float


class Refusal(Exception):
    """Raised by a script to refuse a call, with a stable reason unless that is empty."""

    def __init__(self, code: grpc.StatusCode, reason: str = "", message: str = "refused") -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


def a_run(
    status: run_pb2.RunStatus.ValueType = run_pb2.RUN_STATUS_SUCCEEDED, **fields: Any
) -> run_pb2.Run:  # Any: of the message
    settings = {"run_id": "run-1", "workflow": "w", "queue": "default", "attempt": 1, "max_attempts": 1}
    return run_pb2.Run(status=status, create_time=AT, **{**settings, **fields})


def a_page(count: int, next_page_token: str = "", *, first: int = 0) -> pb.ListRunsResponse:
    runs = [a_run(run_id=f"run-{n}") for n in range(first, first + count)]
    return pb.ListRunsResponse(runs=runs, next_page_token=next_page_token)


class ScriptedRuns(Listener, run_service_pb2_grpc.RunServiceServicer):
    """The service. `script` says for each call, by name, what is answered."""

    def __init__(self) -> None:
        super().__init__(run_service_pb2_grpc.add_RunServiceServicer_to_server)
        self.script: dict[str, Script] = {}
        self.calls: list[Call] = []

    def named(self, name: str) -> list[Call]:
        """The calls of a name."""
        return [call for call in list(self.calls) if call.name == name]

    def refuse_once(self, name: str, *refusals: Refusal) -> None:
        """Refuses the next calls of a name, one by one, then answers as before."""
        answer, left = self.script[name], list(refusals)

        def script(request: Message) -> Message:
            if left:
                raise left.pop(0)
            return answer(request)

        self.script[name] = script

    def _called(self, name: str, request: Message) -> Message:
        self.calls.append(Call(name, request, time.monotonic()))
        return self.script[name](request)

    def _answer(self, name: str, request: Message, context: grpc.ServicerContext) -> Message:
        try:
            return self._called(name, request)
        except Refusal as refusal:
            _abort(context, refusal)

    def ExecuteRuns(self, requests: Iterator[Message], context: grpc.ServicerContext) -> Iterator[Message]:
        """Each start is a call of `StartRun`, and of `End` if its end is waited for, and so is each other wait. A
        refusal without a reason ends the stream.
        """
        for request in requests:
            self.calls.append(Call("ExecuteRuns", request, time.monotonic()))
            try:
                yield self._executed(request)
            except Refusal as refusal:
                _abort(context, refusal)

    def _executed(self, request: Message) -> Message:
        response = pb.ExecuteRunsResponse()
        waits = list(request.run_ids)
        for start in request.starts:
            answer = response.starts.add(number=start.number)
            try:
                answer.started.CopyFrom(self._called("StartRun", start.run))
            except Refusal as refusal:
                if not refusal.reason:
                    raise
                answer.refused.CopyFrom(pb.StartRefusal(reason=refusal.reason, message=refusal.message))
            else:
                waits += [answer.started.run_id] if start.wait else []
        for run_id in waits:
            try:
                ended = self._called("End", run_id)
            except Refusal:
                response.unknown_run_ids.append(run_id)
            else:
                response.runs.extend([] if ended is None else [ended])
        return response

    def GetRun(self, request: Message, context: grpc.ServicerContext) -> Message:
        return self._answer("GetRun", request, context)

    def ListRuns(self, request: Message, context: grpc.ServicerContext) -> Message:
        return self._answer("ListRuns", request, context)

    def ListRunSteps(self, request: Message, context: grpc.ServicerContext) -> Message:
        return self._answer("ListRunSteps", request, context)

    def CancelRun(self, request: Message, context: grpc.ServicerContext) -> Message:
        return self._answer("CancelRun", request, context)

    def CompleteToken(self, request: Message, context: grpc.ServicerContext) -> Message:
        return self._answer("CompleteToken", request, context)

    def WaitRun(self, request: Message, context: grpc.ServicerContext) -> Message:
        return self._answer("WaitRun", request, context)


def _abort(context: grpc.ServicerContext, refusal: Refusal) -> NoReturn:
    if refusal.reason:
        info = status_pb2.ErrorInfo(reason=refusal.reason, domain="redflow")
        details: Sequence[AnyMessage] = [
            AnyMessage(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
        ]
        status = status_pb2.Status(code=refusal.code.value[0], message=refusal.message, details=details)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(refusal.code, refusal.message)
