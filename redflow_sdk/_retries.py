"""When a step is tried again within its attempt."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from collections.abc import Callable, Coroutine
from typing import Final, TypeAlias

from redflow_sdk._contained import ENDS_OF_PROGRAMS
from redflow_sdk._failures import failure_of
from redflow_sdk._names import MAX_BYTES
from redflow_sdk._types import Value
from redflow_sdk.errors import RunCanceledError
from redflow_sdk.records import FailureKind
from redflow_sdk.retry import RetryPolicy

NEVER_RETRIED: Final[tuple[FailureKind, ...]] = (
    *("canceled", "validation", "unknown_workflow", "serialization", "non_retriable", "non_deterministic"),
)
Rest: TypeAlias = Callable[[float], Coroutine[Value, Value, None]]
"""Passes a pause of so many seconds before another try, while the run keeps its slot."""
_ENDS = (asyncio.CancelledError, RunCanceledError, *ENDS_OF_PROGRAMS)


def delay_before_next(policy: RetryPolicy | None, tries: int, error: BaseException) -> float | None:
    """Seconds before the next try of a step whose last one raised; None when that was the last.

    The rule is that of attempts: what is not to be retried is not, and RetryAfterError says when.
    """
    if policy is None or tries >= policy.max_attempts or isinstance(error, _ENDS):
        return None
    failure = failure_of(error)
    if failure.no_retry or failure.kind in NEVER_RETRIED:
        return None
    if failure.retry_after is not None:
        return failure.retry_after
    delay = min(policy.maximum, policy.initial * _grown(policy.multiplier, tries))
    return delay + delay * policy.jitter * random.random()


def _grown(multiplier: float, tries: int) -> float:
    try:
        return float(multiplier) ** (tries - 1)
    except OverflowError:
        return sys.float_info.max


def pause_name(step_name: str, attempt: int, number: int) -> str:
    """The step that waits before this try of a step. A wait that is over stays so: each attempt has its own."""
    which = f" (before try {number})" if attempt == 1 else f" (attempt {attempt}, before try {number})"
    encoded = step_name.encode()
    room = MAX_BYTES - len(which)
    if len(encoded) > room:
        digest = hashlib.sha256(encoded).hexdigest()[:16]
        step_name = f"{encoded[: room - len(digest) - 1].decode(errors='ignore')}~{digest}"
    return step_name + which
