"""Exceptions as failures: bounded, and made without trusting the exception."""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from typing import Final

from redflow_sdk import errors
from redflow_sdk.records import Failure, FailureKind

MESSAGE_CHARS: Final = 16 * 1024
TRACEBACK_CHARS: Final = 32 * 1024
CAUSE_CHARS: Final = 2 * 1024
MAX_CAUSES: Final = 8
MAX_DETAILS: Final = 100

_KINDS: Final[tuple[tuple[type[BaseException], FailureKind], ...]] = (
    (errors.InputValidationError, "validation"),
    (errors.InvalidInputError, "validation"),
    (errors.SerializationError, "serialization"),
    (errors.NonDeterministicError, "non_deterministic"),
    (errors.UnknownWorkflowError, "unknown_workflow"),
    (errors.NonRetriableError, "non_retriable"),
    (errors.CanceledError, "canceled"),
    (TimeoutError, "timeout"),
)


def failure_of(error: BaseException) -> Failure:
    """The failure of an exception, with its causes."""
    links = _chain(error)
    failure: Failure | None = None
    for depth in range(len(links) - 1, -1, -1):
        failure = _one(links[depth], depth == 0, failure)
    assert failure is not None
    never = any(_forbids_retry(link) for link in links)
    delay = next((link.delay for link in links if isinstance(link, errors.RetryAfterError)), None)
    details = error.details[:MAX_DETAILS] if isinstance(error, errors.InputValidationError) else None
    return Failure(
        failure.type,
        failure.message,
        failure.kind,
        failure.traceback,
        "python",
        details=details,
        cause=failure.cause,
        no_retry=never,
        retry_after=delay,
    )


def fitted(failure: Failure, limit_bytes: int) -> Failure:
    """The failure with as much of it as may be sent: first the details go, then the traceback, then the causes."""
    for smaller in (
        failure,
        replace(failure, details=None),
        replace(failure, details=None, traceback=""),
        replace(failure, details=None, traceback="", cause=None),
    ):
        if _size(smaller) <= limit_bytes:
            return smaller
    kept = max(0, limit_bytes // 2 - 200) // 4
    return replace(smaller, type=failure.type[:100], message=_bounded(failure.message, kept))


def _size(failure: Failure) -> int:
    details = len(json.dumps(failure.details)) if failure.details is not None else 0
    texts = (failure.type, failure.message, failure.traceback)
    cause = _size(failure.cause) if failure.cause is not None else 0
    return 200 + details + sum(len(text.encode()) for text in texts) + cause


def canceled_failure() -> Failure:
    """The failure of a handler that ended as canceled although nobody had asked for that."""
    return Failure(
        "CancelledError", "the handler ended as canceled, but nobody had asked for that", "canceled", "", "python"
    )


def _one(error: BaseException, is_outermost: bool, cause: Failure | None) -> Failure:
    error_kind: FailureKind = "error"
    kind = next((kind for types, kind in _KINDS if isinstance(error, types)), error_kind)
    return Failure(
        type=type(error).__name__,
        message=_bounded(_text_of(error), MESSAGE_CHARS if is_outermost else CAUSE_CHARS),
        kind=kind,
        traceback=_traceback_of(error) if is_outermost else "",
        language="python",
        cause=cause,
    )


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and what led to it, without going round in circles. A group is followed into its first member."""
    links: list[BaseException] = []
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(links) <= MAX_CAUSES:
        links.append(link)
        seen.add(id(link))
        if isinstance(link, BaseExceptionGroup):
            link = link.exceptions[0]
        else:
            link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return links


def _forbids_retry(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_forbids_retry(member) for member in error.exceptions)
    return isinstance(error, errors.NonRetriableError)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # str() of a user's exception may raise anything; the run has to fail all the same
        return f"<{type(error).__name__}.__str__ raised {type(broken).__name__}>"


def _traceback_of(error: BaseException) -> str:
    try:
        # The frames only: a group's members, a broken __str__ and endless causes stay out.
        lines = traceback.format_tb(error.__traceback__)
    except Exception:  # sources may be gone or unreadable
        return ""
    text = "".join(lines)
    return _bounded(text if len(text) <= TRACEBACK_CHARS else "... " + text[-TRACEBACK_CHARS:], TRACEBACK_CHARS + 4)


def _bounded(text: str, limit: int) -> str:
    """Text that protobuf takes: at most so long, and without lone surrogates."""
    if len(text) > limit:
        text = f"{text[:limit]}... ({len(text)} characters)"
    return text.encode("utf-8", "backslashreplace").decode()
