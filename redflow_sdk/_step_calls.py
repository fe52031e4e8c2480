"""What handlers ask of their steps, checked and encoded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, get_args

from redflow_sdk import converter
from redflow_sdk._failures import child_error, token_error
from redflow_sdk._messages import (
    ChildTarget,
    EventTarget,
    RunStart,
    StepSnapshot,
    TimerTarget,
    TokenTarget,
)
from redflow_sdk._names import check_name
from redflow_sdk._numbers import check_number, check_seconds
from redflow_sdk._readers import Describe
from redflow_sdk._start import StartOptions, check_key, run_start
from redflow_sdk._types import Annotation, Function, Value
from redflow_sdk.errors import InputValidationError, InvalidInputError
from redflow_sdk.records import Event, Payload, Raced
from redflow_sdk.retry import RetryPolicy

if TYPE_CHECKING:  # a workflow is of a handler that takes a context, whose steps make these calls
    from redflow_sdk.workflow import AnyWorkflow

T = TypeVar("T")

ParentClose = Literal["abandon", "cancel"]
"""What becomes of a run that nobody waits for when the run that has started it ends."""


@dataclass(frozen=True, slots=True)
class StepCall:
    """A step that a handler asks for. `timeout` is in seconds, for each try."""

    name: str
    function: Function
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    timeout: float | None
    retry: RetryPolicy | None = None


@dataclass(frozen=True, slots=True)
class WaitCall:
    """Something that a handler waits for, at most `timeout` seconds; `read` makes its value, or raises its error."""

    name: str
    target: TimerTarget | EventTarget | ChildTarget | TokenTarget
    timeout: float | None
    read: Callable[[StepSnapshot, Describe], Value]
    workflow: AnyWorkflow | None = None
    """Whose run it is, where the handler has named the workflow itself and not only its name."""


@dataclass(frozen=True, slots=True)
class ChildCall:
    """A run that a handler starts without waiting for it."""

    name: str
    start: RunStart
    ends_with_parent: bool
    workflow: AnyWorkflow | None = None
    """As in WaitCall."""


@dataclass(frozen=True, slots=True)
class EmitCall:
    """An event that a handler emits. `idempotency_ttl` is in seconds."""

    name: str
    event: str
    key: str | None
    payload: Payload
    idempotency_key: str | None
    idempotency_ttl: float | None
    available_at: datetime | None = None


class StepRunner(Protocol):
    """Runs steps once, and knows whether the run is canceled."""

    @property
    def describe(self) -> Describe:
        """How the faults of a value are told."""

    @property
    def is_stopped(self) -> bool:
        """Whether the handler has to end."""

    async def run_step(self, call: StepCall) -> Value:
        """The step's value: what the function returns, or what is on record."""

    def run_step_in_thread(self, call: StepCall) -> Value:
        """The same for a handler in a thread."""

    async def wait(self, call: WaitCall) -> Value:
        """What the step waits for."""

    async def token(self, name: str, timeout: float | None) -> str:
        """The token of a step, which waits from now on."""

    async def completed(self, call: WaitCall) -> Value:
        """What the token of a step was completed with."""

    async def start(self, call: ChildCall) -> str:
        """The id of a run that the step starts."""

    async def emit(self, call: EmitCall) -> list[str]:
        """The runs that an event starts."""

    async def race(
        self, name: str, members: Mapping[str, Coroutine[Value, Value, Value]], unnamed: Sequence[Value]
    ) -> Raced[Value]:
        """The first of the members to end; what came without a name is none."""

    def on_loop(self, work: Coroutine[Value, Value, T]) -> T:
        """What a coroutine comes to, for a handler in a thread."""


def sleep_call(name: str, seconds: float, minutes: float, hours: float, days: float) -> WaitCall:
    """Raises InvalidInputError."""
    length = (
        check_number("seconds", seconds)
        + 60 * check_number("minutes", minutes)
        + 3600 * check_number("hours", hours)
        + 86400 * check_number("days", days)
    )
    delay = check_seconds("the length of a sleep", max(length, 0.0), lowest=0.0)
    return WaitCall(check_name("step name", name), TimerTarget(delay_s=delay), None, lambda *_: None)


def sleep_until_call(name: str, at: datetime) -> WaitCall:
    """Raises InvalidInputError."""
    return WaitCall(check_name("step name", name), TimerTarget(until=check_aware("at", at)), None, lambda *_: None)


def event_call(name: str, event: str, key: str | None, timeout: float | None, payload_type: Annotation) -> WaitCall:
    """Raises InvalidInputError."""
    check_name("event", event)
    _check_event_key(key)

    def read(known: StepSnapshot, describe: Describe) -> Event[Value] | None:
        if not known.event_id:
            return None
        payload = _decoded(name, known, payload_type, describe)
        return Event(known.event_id, event, key, payload, known.event_time)

    return WaitCall(check_name("step name", name), EventTarget(event, key), check_timeout(timeout), read)


def child_call(
    name: str, workflow: AnyWorkflow | str, input: Value, options: StartOptions, timeout: float | None
) -> WaitCall:
    """Raises InvalidInputError, InputValidationError, SerializationError."""
    check_name("step name", name)
    start = run_start(workflow, input, options)
    output_type: Annotation = Any if isinstance(workflow, str) else workflow.output_type

    def read(known: StepSnapshot, describe: Describe) -> Value:
        if known.failure is not None:
            raise child_error(known.failure)
        return _decoded(name, known, output_type, describe)

    return WaitCall(name, ChildTarget(start), check_timeout(timeout), read, _itself(workflow))


def token_call(name: str, output_type: Annotation) -> WaitCall:
    """Waiting for a token that was made before."""

    def read(known: StepSnapshot, describe: Describe) -> Value:
        if known.failure is not None:
            raise token_error(known.failure)
        return _decoded(name, known, output_type, describe)

    return WaitCall(name, TokenTarget(), None, read)


def _decoded(name: str, known: StepSnapshot, annotation: Annotation, describe: Describe) -> Value:
    """What somebody else has given to a step. Raises InputValidationError, which names the step."""
    if known.output is None:
        return None
    try:
        return converter.decode(known.output.data, annotation, describe)
    except InputValidationError as error:
        raise InputValidationError(f"the value of step {name!r} does not fit: {error}", error.details) from None


def start_call(
    name: str, workflow: AnyWorkflow | str, input: Value, options: StartOptions, parent_close: ParentClose
) -> ChildCall:
    """Raises InvalidInputError, InputValidationError, SerializationError."""
    if parent_close not in get_args(ParentClose):
        raise InvalidInputError(f"parent_close must be one of {', '.join(get_args(ParentClose))}; got {parent_close!r}")
    start = run_start(workflow, input, options)
    return ChildCall(check_name("step name", name), start, parent_close == "cancel", _itself(workflow))


def _itself(workflow: AnyWorkflow | str) -> AnyWorkflow | None:
    return None if isinstance(workflow, str) else workflow


def emit_call(
    name: str,
    event: str,
    payload: Value,
    *,
    key: str | None = None,
    idempotency_key: str | None,
    idempotency_ttl: float | None,
) -> EmitCall:
    """Raises InvalidInputError, SerializationError."""
    check_name("step name", name)
    check_name("event", event)
    _check_event_key(key)
    check_key(idempotency_key, idempotency_ttl)
    data = converter.encode(payload, f"the payload of event {event!r}")
    return EmitCall(name, event, key, Payload(data), idempotency_key, idempotency_ttl)


def _check_event_key(key: str | None) -> None:
    """Raises InvalidInputError. An empty key is one, too."""
    if key is not None and key != "":
        check_name("key", key)


def check_aware(field: str, at: datetime) -> datetime:
    """Returns the time. Raises InvalidInputError when it is none, or has no zone."""
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidInputError(f"{field} must be an aware datetime; got {at!r}")
    return at


def check_timeout(timeout: float | None) -> float | None:
    """Returns the seconds. Raises InvalidInputError when they make no sense."""
    return None if timeout is None else check_seconds("timeout", timeout)
