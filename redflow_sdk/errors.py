"""What can go wrong with workflows, as exceptions of one root. Beside them come TimeoutError and CancelledError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from redflow_sdk.records import Failure

MAX_SECONDS: Final = 100 * 366 * 86400.0
"""Seconds; 100 years, as the gateway has it."""


class RedflowError(Exception):
    """The root of this module's exceptions. `reason` is the gateway's stable word for it, where there is one."""

    reason: str = ""

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
    """Raise it in a handler or step to fail the run without another attempt."""


class RetryAfterError(RedflowError):
    """Raise it in a handler or step to have the next attempt begin after `delay` seconds."""

    def __init__(self, message: str = "", *, delay: float) -> None:
        if not 0 <= delay < MAX_SECONDS:
            raise ValueError(f"delay must be between 0 s and 100 years; got {delay}")
        super().__init__(message)
        self.delay = delay


# ---- raised inside handlers ----


class DuplicateStepError(NonRetriableError):
    """A step name was used twice in one run."""


class NonDeterministicError(NonRetriableError):
    """A step name is on record as another kind of step."""


class StepFailedError(RedflowError):
    """A step failed before its worker was lost, and fails again the same way now. `failure` is what is on record."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure


class ChildFailedError(StepFailedError):
    """A run that a step waited for has failed; `failure.cause` is how."""


class ChildCanceledError(StepFailedError):
    """A run that a step waited for was canceled."""


class TokenFailedError(StepFailedError):
    """Somebody has failed the token that a step waited for; `failure` is how."""


class RunCanceledError(RedflowError):
    """Raised in `def` handlers and steps of a run that was canceled or lost to this worker."""


class SerializationError(NonRetriableError):
    """A value cannot be written as JSON, or is too large. The message names the place in the value."""


class CodecError(RedflowError):
    """A payload was encoded by a codec that is not at hand, or by which it cannot be decoded, or encoded."""


class InputValidationError(NonRetriableError):
    """The input does not fit the workflow, or what a wait was given its type. `details` lists the fields."""

    def __init__(self, message: str, details: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.details: list[dict[str, str]] = details or []


# ---- raised to clients ----


class InvalidInputError(RedflowError, ValueError):
    """An argument was refused, here or by the gateway; the message names field, rule and what came."""


class RunNotFoundError(RedflowError, LookupError):
    """There is no run with this id."""


class TokenNotFoundError(RedflowError, LookupError):
    """No step waits, or has waited, for this token."""


class NotWaitingError(RedflowError):
    """What is to be completed does not wait any more."""


class UnknownWorkflowError(RedflowError, LookupError):
    """No workflow with this name is registered. Raised to handlers that start one, too."""


class IdempotencyKeyReusedError(RedflowError):
    """The idempotency key was used with other input."""


class RunFailedError(RedflowError):
    """The run has failed; `failure` says how. As text it says so too, and where the traceback is, which is `hint`."""

    def __init__(self, message: str, run_id: str, workflow: str, failure: Failure) -> None:
        super().__init__(message)
        self.message = message
        self.run_id = run_id
        self.workflow = workflow
        self.failure = failure
        shown = f"Its traceback is in error.failure.traceback; `redflow run get {run_id}` shows it"
        self.hint: str = shown if failure.traceback else ""

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class CanceledError(RedflowError):
    """The run was canceled."""


class UnavailableError(RedflowError, ConnectionError):
    """The gateway or its store could not be reached in time."""


class RefusedError(RedflowError):
    """The gateway refused the call; `reason` says why."""


# ---- raised by workers ----


class SessionRefusedError(RedflowError):
    """The gateway will not take this worker, now or later."""
