"""Exceptions as failures, bounded and made without trusting the exception, and failures as exceptions again."""

from __future__ import annotations

import builtins
import json
import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from redflow_sdk import errors
from redflow_sdk._types import JsonValue
from redflow_sdk.records import Failure, FailureKind, Payload

MESSAGE_CHARS: Final = 16 * 1024
TRACEBACK_CHARS: Final = 32 * 1024
CAUSE_CHARS: Final = 2 * 1024
MAX_CAUSES: Final = 8
MAX_DETAILS: Final = 100
MAX_RELATED: Final = 100_000
MAX_MEMBERS: Final = 5
"""How many members of a group its text tells; of a group in it one less, and so on, but at least one."""
TYPE_CHARS: Final = 1024
ENDS_OF_ITERATORS: Final = (StopIteration, StopAsyncIteration)
_OURS: Final = str(Path(__file__).parent) + os.sep

T = TypeVar("T")

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
    # The causes of a run that was waited for lie in its own failure.
    failure = links[-1].failure.cause if isinstance(links[-1], errors.StepFailedError) else None
    for depth in range(len(links) - 1, -1, -1):
        failure = _cause(links[depth], failure)
    assert failure is not None
    related = list(_related(error))
    delays = (_delay_of(other) for other in related if isinstance(other, errors.RetryAfterError))
    return replace(
        failure,
        message=_bounded(_text_of(error), MESSAGE_CHARS),
        traceback=_traceback_of(error),
        details=_details_of(error) if isinstance(error, errors.InputValidationError) else None,
        no_retry=any(isinstance(other, errors.NonRetriableError) for other in related),
        retry_after=next((delay for delay in delays if delay is not None), None),
    )


def fitted(failure: Failure, limit_bytes: int) -> Failure:
    """The failure with as much of it as may be sent: first the details go, then the traceback, then the causes."""
    for smaller in (
        failure,
        replace(failure, details=None),
        replace(failure, details=None, traceback=""),
        replace(failure, details=None, traceback="", cause=None),
    ):
        if size_of(smaller) <= limit_bytes:
            return smaller
    kept = max(0, limit_bytes // 2 - 200) // 4
    return replace(smaller, type=failure.type[:100], message=_bounded(failure.message, kept))


def size_of(failure: Failure) -> int:
    """About how many bytes it takes in a message, and not less."""
    if isinstance(failure.details, Payload):
        details = len(failure.details.data)
    else:
        details = len(json.dumps(failure.details)) if failure.details is not None else 0
    texts = (failure.type, failure.message, failure.traceback)
    cause = size_of(failure.cause) if failure.cause is not None else 0
    return 200 + details + sum(len(text.encode()) for text in texts) + cause


def canceled_failure() -> Failure:
    """The failure of a handler that ended as canceled although nobody had asked for that."""
    return Failure(
        "CancelledError", "the handler ended as canceled, but nobody had asked for that", "canceled", "", "python"
    )


def _cause(error: BaseException, cause: Failure | None) -> Failure:
    """An exception without the way to it, as it is kept of causes."""
    error_kind: FailureKind = "error"
    kind = next((kind for types, kind in _KINDS if isinstance(error, types)), error_kind)
    return Failure(
        type=_bounded(type(error).__name__, TYPE_CHARS),
        message=_bounded(_text_of(error), CAUSE_CHARS),
        kind=kind,
        traceback="",
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
        link = link.exceptions[0] if isinstance(link, BaseExceptionGroup) else _led_to(link)
    return links


def _related(error: BaseException) -> Iterator[BaseException]:
    """The exception, the members of groups, and all their causes: what may say how to go on. Bounded."""
    waiting = [error]
    seen: set[int] = set()
    while waiting and len(seen) < MAX_RELATED:
        link = waiting.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        led_to = _led_to(link)
        if led_to is not None:
            waiting.append(led_to)
        if isinstance(link, BaseExceptionGroup):
            waiting += reversed(link.exceptions)


def _led_to(error: BaseException) -> BaseException | None:
    # Not `or`: an exception may be falsy, as one with a `__len__` is.
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def _told(tell: Callable[[], T], otherwise: Callable[[BaseException], T]) -> T:
    """What an exception tells of itself, if it can."""
    try:
        return tell()
    except BaseException as broken:  # a user's exception may raise anything; the run has to fail all the same
        return otherwise(broken)


def _delay_of(error: errors.RetryAfterError) -> float | None:
    """The delay it asks for; None when a subclass has forgotten or spoilt it."""
    delay = _told(lambda: error.delay, lambda _: None)
    return float(delay) if isinstance(delay, (int, float)) and 0 <= delay < errors.MAX_SECONDS else None


def _details_of(error: errors.InputValidationError) -> list[JsonValue] | None:
    """The details; None when a subclass has none, or none that are JSON."""
    details = _told(lambda: getattr(error, "details", None), lambda _: None)
    if not isinstance(details, list):
        return None
    try:
        json.dumps(details[:MAX_DETAILS], allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return details[:MAX_DETAILS]


def _text_of(error: BaseException, members: int = MAX_MEMBERS) -> str:
    return _told(
        lambda: _text_with_members(error, members),
        lambda broken: f"<{type(error).__name__}.__str__ raised {type(broken).__name__}>",
    )


def _text_with_members(error: BaseException, members: int) -> str:
    text = str.__str__(str(error))  # which may be of a subclass of str
    if not isinstance(error, BaseExceptionGroup):
        return text
    fewer = max(1, members - 1)
    told = (f"{type(member).__name__}: {_text_of(member, fewer)}" for member in error.exceptions[:members])
    return f"{text}: {'; '.join(told)}"


def _traceback_of(error: BaseException) -> str:
    """The way through the user's code; ours is left out, unless there is no other."""
    try:
        # The frames only: a group's members and endless causes stay out.
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)]
        lines = traceback.format_list(theirs or frames)
    except (OSError, ValueError):  # sources may be gone or unreadable
        return ""
    last = f"{type(error).__name__}: {_text_of(error)[:CAUSE_CHARS]}"
    text = "".join(["Traceback (most recent call last):\n", *lines, _bounded(last, TYPE_CHARS + CAUSE_CHARS)])
    return _bounded(text if len(text) <= TRACEBACK_CHARS else "... " + text[-TRACEBACK_CHARS:], TRACEBACK_CHARS + 4)


def _bounded(text: str, limit: int) -> str:
    """Text that protobuf takes: at most so long, and without lone surrogates."""
    if len(text) > limit:
        text = f"{text[:limit]}... ({len(text)} characters)"
    return text.encode("utf-8", "backslashreplace").decode()


def child_error(failure: Failure) -> Exception:
    """What another run raises that did not succeed, or that could not be started or waited for."""
    types = {"ChildFailedError": errors.ChildFailedError, "ChildCanceledError": errors.ChildCanceledError}
    if failure.type == "UnknownWorkflowError":
        return errors.UnknownWorkflowError(failure.message)
    if failure.type == "TimeoutError" and not failure.language:
        return TimeoutError(failure.message)
    if failure.type not in types:
        return errors.StepFailedError(f"{failure.type}: {failure.message}", failure)
    cause = f": {failure.cause.type}: {failure.cause.message}" if failure.cause else ""
    return types[failure.type](failure.message + cause, failure)


def token_error(failure: Failure) -> Exception:
    """What waiting for a token raises when it was failed, or not completed in time."""
    if failure.kind == "timeout" and not failure.language:
        return TimeoutError(failure.message)
    return errors.TokenFailedError(f"{failure.type}: {failure.message}", failure)


def raised_again(failure: Failure) -> Exception:
    """What a recorded failure raises when the handler comes to it again: the built-in of its name, if it is one."""
    error = errors.StepFailedError(f"{failure.type}: {failure.message}", failure)
    builtin = getattr(builtins, failure.type, None)
    # What ends iterators may not be raised out of a coroutine.
    if isinstance(builtin, type) and issubclass(builtin, Exception) and not issubclass(builtin, ENDS_OF_ITERATORS):
        try:
            again = builtin(failure.message)
        except TypeError:  # it takes other arguments
            return error
        again.__cause__ = error
        return again
    return error
