"""What a codec does to payloads and failures on their way out, and back. Without one they pass as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from redflow_sdk import converter
from redflow_sdk._messages import StepSnapshot
from redflow_sdk._names import check_name
from redflow_sdk._readers import Describe, with_glimpse, without_glimpse
from redflow_sdk._threads import Outcome
from redflow_sdk._types import Annotation, Json, Value
from redflow_sdk.codec import PayloadCodec
from redflow_sdk.errors import CodecError, InputValidationError, InvalidInputError
from redflow_sdk.records import CODEC_MARK, CronTrigger, Failure, Payload, Run, Schedule, Step, WorkflowInfo

SEALED_TYPE: Final = "application/octet-stream"
UNREADABLE: Final = (CodecError, InputValidationError)


class Sealing:
    """The codec of one client or worker, or that it has none. `holder` is what users call it, such as "worker"."""

    def __init__(self, codec: PayloadCodec | None, holder: str) -> None:
        """Raises InvalidInputError for what is no codec."""
        if codec is not None and not all(callable(getattr(codec, do, None)) for do in ("encode", "decode")):
            raise InvalidInputError(f"codec must have the methods encode and decode; got a {type(codec).__name__}")
        self._codec = codec
        self._holder = holder
        self.name: Final[str] = (
            "" if codec is None else check_name("the name of the codec", getattr(codec, "name", None) or "")
        )
        self.describe: Final[Describe] = with_glimpse if codec is None else without_glimpse
        """How the faults of a value are told: what is to be encoded shows nothing of itself."""

    # ---- payloads ----

    def sealed(self, what: str, payload: Payload) -> Payload:
        """The payload as it may leave the process. Raises CodecError, which names it by `what`."""
        if self._codec is None:
            return payload
        data = self._coded(what, self._codec.encode, payload.data)
        return Payload(data, SEALED_TYPE, (*payload.metadata, (CODEC_MARK, self.name)))

    def opened(self, what: str, payload: Payload) -> Payload:
        """The payload as it was before. One that no codec has encoded is what it is. Raises CodecError."""
        name = payload.codec
        if not name:
            return payload
        if self._codec is None or self.name != name:
            has = f"codec {self.name!r}" if self._codec else "none"
            raise CodecError(
                f"{what} was encoded by codec {name!r}, and this {self._holder} has {has}; "
                f"give it the codec by {self._holder.capitalize()}(codec=...)"
            )
        return Payload(self._coded(what, self._codec.decode, payload.data))

    def read(self, what: str, payload: Payload, annotation: Annotation) -> Value:
        """The value of a payload. Raises CodecError, InputValidationError."""
        return converter.decode(self.opened(what, payload).data, annotation, self.describe)

    def read_output(self, output: Json, annotation: Annotation) -> Value:
        """The output of a run as `opened_run` has left it. Raises CodecError, InputValidationError."""
        if isinstance(output, Payload):
            return self.read("the output", output, annotation)
        return converter.structure(output, annotation, self.describe)

    def _coded(self, what: str, code: Callable[[bytes], bytes], data: bytes) -> bytes:
        outcome = Outcome.of(partial(code, data))
        if outcome.error is not None and not isinstance(outcome.error, KeyboardInterrupt):
            # Not what it says, which may be a part of the payload.
            raise CodecError(f"codec {self.name!r} does not take {what}: {type(outcome.error).__name__}")
        coded = outcome.get()
        if not isinstance(coded, bytes):
            raise CodecError(f"codec {self.name!r} must return bytes for {what}; got a {type(coded).__name__}")
        return coded

    # ---- failures ----

    def sealed_failure(self, failure: Failure, limit_bytes: int) -> Failure:
        """The failure with everything that may hold values of the user in its details, encoded, as far as they fit.

        Type and kind stay readable, and so does what steers the next attempt.
        """
        if self._codec is None:
            return failure
        hidden = replace(failure, message=f"encoded by codec {self.name!r}", traceback="", details=None, cause=None)
        for kept in (failure, replace(failure, cause=None, traceback=""), replace(hidden, message="")):
            data = json.dumps(_document(kept)).encode()
            try:
                details = self.sealed("a failure", Payload(data))
            except CodecError as error:
                return replace(hidden, message=f"not shown, because {error}")
            if len(details.data) <= limit_bytes:
                return replace(hidden, details=details)
        return hidden

    def opened_failure(self, failure: Failure) -> Failure:
        """The failure as it was before; as it is, where it cannot be decoded."""
        cause = None if failure.cause is None else self.opened_failure(failure.cause)
        failure = failure if cause is failure.cause else replace(failure, cause=cause)
        if not isinstance(failure.details, Payload):
            return failure
        try:
            document = self.read("a failure", failure.details, dict)
            return replace(_failure(document), no_retry=failure.no_retry, retry_after=failure.retry_after)
        except (*UNREADABLE, LookupError, TypeError):
            return failure

    # ---- what holds payloads and failures ----

    def opened_snapshot(self, known: StepSnapshot) -> StepSnapshot:
        """A step on record with what it holds. Raises CodecError."""
        if known.output is not None and known.output.metadata:
            known = replace(known, output=self.opened(f"the value of step {known.name!r}", known.output))
        if known.failure is not None:
            known = replace(known, failure=self.opened_failure(known.failure))
        return known

    def opened_run(self, run: Run) -> Run:
        """A run as clients see it; what cannot be decoded stays a Payload."""
        return replace(
            run,
            input=self._opened_json(run.input),
            output=self._opened_json(run.output),
            failure=run.failure and self.opened_failure(run.failure),
            failure_handler_failure=run.failure_handler_failure and self.opened_failure(run.failure_handler_failure),
        )

    def opened_step(self, step: Step) -> Step:
        """A step as clients see it; what cannot be decoded stays a Payload."""
        failure = step.failure and self.opened_failure(step.failure)
        return replace(step, output=self._opened_json(step.output), failure=failure)

    def opened_schedule(self, schedule: Schedule) -> Schedule:
        """A schedule as clients see it."""
        return replace(schedule, cron=self._opened_cron(schedule.cron))

    def opened_workflow(self, workflow: WorkflowInfo) -> WorkflowInfo:
        """A workflow as clients see it."""
        return replace(workflow, cron=tuple(map(self._opened_cron, workflow.cron)))

    def _opened_cron(self, cron: CronTrigger) -> CronTrigger:
        return replace(cron, input=self._opened_json(cron.input))

    def _opened_json(self, value: Json) -> Json:
        if not isinstance(value, Payload):
            return value
        try:
            return self.read("a value", value, object)
        except UNREADABLE:
            return value


def _document(failure: Failure) -> Json:
    return {
        "type": failure.type,
        "message": failure.message,
        "kind": failure.kind,
        "traceback": failure.traceback,
        "language": failure.language,
        # Those of a cause that could not be decoded here are dropped.
        "details": None if isinstance(failure.details, Payload) else failure.details,
        "cause": None if failure.cause is None else _document(failure.cause),
    }


def _failure(document: Json) -> Failure:
    cause = document.pop("cause")
    return Failure(**document, cause=None if cause is None else _failure(cause))
