"""What can go wrong with workflows, as exceptions of one root. Beside them come TimeoutError and CancelledError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from redflow_sdk.records import Failure

MAX_SECONDS: Final = 100 * 366 * 86400.0
"""Seconds; 100 years, as the gateway has it."""


class RedflowError(Exception):
    """The root of the SDK's exceptions: `except RedflowError` catches them all."""

    reason: str = ""
    """The gateway's stable word for it, such as `RUN_NOT_FOUND`; empty where there is none."""

    def __init__(self, message: str = "", reason: str = "") -> None:
        super().__init__(message)
        if reason:
            self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        # Pools of processes send exceptions. What pickle does by itself calls `__init__` with the message alone.
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[RedflowError], args: tuple[object, ...]) -> RedflowError:
    error = kind.__new__(kind)
    error.args = args  # an OSError would have them from its `__init__`
    return error


# ---- raised by user code, to steer retries ----


class NonRetriableError(RedflowError):
    """Raise it in a handler or step to fail the run without another attempt, whatever its RetryPolicy says.

    raise NonRetriableError("the card has expired")
    """


class RetryAfterError(RedflowError):
    """Raise it in a handler or step to have the next attempt begin after `delay` seconds, instead of what its
    RetryPolicy says. It gives no further attempt to a run that has none left. `delay` is from 0 to 100 years, else
    ValueError is raised.

        raise RetryAfterError("too many requests", delay=float(response.headers["Retry-After"]))
    """

    delay: float
    """Seconds until the next attempt."""

    def __init__(self, message: str = "", *, delay: float) -> None:
        if not 0 <= delay < MAX_SECONDS:
            raise ValueError(f"delay must be between 0 s and 100 years; got {delay}")
        super().__init__(message)
        self.delay = delay


# ---- raised inside handlers ----


class DuplicateStepError(NonRetriableError):
    """A step name was used twice in one run: give each its own, as `Steps.each` does. There is no other attempt."""


class NonDeterministicError(NonRetriableError):
    """A step name is on record as another kind of step: the code has changed under a run, or does not come to the same
    steps each time. There is no other attempt.
    """


class StepFailedError(RedflowError):
    """A step failed before its worker was lost, and fails again the same way now."""

    failure: Failure
    """What is on record."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure


class ChildFailedError(StepFailedError):
    """A run that a step waited for has failed; the `cause` of its `failure` is how."""


class ChildCanceledError(StepFailedError):
    """A run that a step waited for was canceled."""


class TokenFailedError(StepFailedError):
    """Somebody has failed the token that a step waited for; `failure` is how."""


class RunCanceledError(RedflowError):
    """Raised in `def` handlers and steps of a run that was canceled or lost to this worker. Let it pass: the run is
    over, or somebody else has it. In `async def` ones asyncio.CancelledError comes instead.
    """


class SerializationError(NonRetriableError):
    """A value cannot be written as JSON, or is too large. The message names the place in the value. Raised to who sends
    the value; in a handler there is no other attempt.
    """


class CodecError(RedflowError):
    """A payload was encoded by a codec that is not at hand, or by which it cannot be decoded, or encoded. The message
    names the codec, and no part of the payload.
    """


class InputValidationError(NonRetriableError):
    """The input does not fit the workflow, or what a wait was given its type. Handlers get no other attempt."""

    details: list[dict[str, str]]
    """The fields at fault: of each the `path`, such as `$.items[0].price`, and the `problem`."""

    def __init__(self, message: str, details: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.details: list[dict[str, str]] = details or []


# ---- raised to clients ----


class InvalidInputError(RedflowError, ValueError):
    """An argument was refused, here or by the gateway; the message names field, rule and what came. It is a ValueError,
    too.
    """


class RunNotFoundError(RedflowError, LookupError):
    """There is no run with this id: there never was, or it was deleted. It is a LookupError, too."""


class TokenNotFoundError(RedflowError, LookupError):
    """No step waits, or has waited, for this token. It is a LookupError, too."""


class NotWaitingError(RedflowError):
    """What is to be completed does not wait any more: it was completed with something else, has timed out, or its run
    has ended.
    """


class UnknownWorkflowError(RedflowError, LookupError):
    """No workflow with this name is registered. Raised to handlers that start one, too. It is a LookupError."""


class IdempotencyKeyReusedError(RedflowError):
    """The idempotency key was used with other input, and `on_input_mismatch` was "reject"."""


class RunFailedError(RedflowError):
    """The run that was waited for has failed. As text it says how, and where the traceback is.

    try:
        await client.execute(pay, "A-17")
    except RunFailedError as failed:
        print(failed.failure.type, failed.failure.message)
    """

    message: str
    """How it has failed, in one line, with its workflow and id."""
    run_id: str
    """The id of the run."""
    workflow: str
    """The name of its workflow."""
    failure: Failure
    """What is on record of it."""
    hint: str
    """Where the traceback is; empty if there is none."""

    def __init__(self, message: str, run_id: str, workflow: str, failure: Failure) -> None:
        super().__init__(message)
        self.message = message
        self.run_id = run_id
        self.workflow = workflow
        self.failure = failure
        shown = f"Its traceback is in error.failure.traceback; `redflow run get {run_id}` shows it"
        self.hint = shown if failure.traceback else ""

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class CanceledError(RedflowError):
    """The run that was waited for was canceled; the message has the reason that was given."""


class UnavailableError(RedflowError, ConnectionError):
    """The gateway or its store could not be reached in time. It is not known whether the call was carried out: repeat a
    start with an `idempotency_key`. It is a ConnectionError, too.
    """


class RefusedError(RedflowError):
    """The gateway refused the call for what has no exception of its own; `RedflowError.reason` says why."""


# ---- raised by workers ----


class SessionRefusedError(RedflowError):
    """The gateway will not take this worker, now or later, such as one whose SDK it does not speak with. The message
    says why.
    """
