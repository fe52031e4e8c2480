"""How user code fails, and which failures may be retried."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from redflow_server.domain.payloads import Payload


class FailureKind(StrEnum):
    """What kind of failure it was."""

    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    VALIDATION = "validation"
    UNKNOWN_WORKFLOW = "unknown_workflow"
    SERIALIZATION = "serialization"
    NON_RETRIABLE = "non_retriable"
    WORKER_LOST = "worker_lost"
    RUN_NOT_FOUND = "run_not_found"
    NON_DETERMINISTIC = "non_deterministic"
    AWAIT_CYCLE = "await_cycle"


class RetryHint(StrEnum):
    """What the failing code wished for, beyond its kind."""

    RETRY = "retry"
    NO_RETRY = "no_retry"


NOT_RETRIED: Final = frozenset(
    {
        FailureKind.CANCELED,
        FailureKind.VALIDATION,
        FailureKind.UNKNOWN_WORKFLOW,
        FailureKind.SERIALIZATION,
        FailureKind.NON_RETRIABLE,
        FailureKind.NON_DETERMINISTIC,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of user code, with its causes."""

    type: str
    message: str
    kind: FailureKind = FailureKind.ERROR
    traceback: str = ""
    language: str = ""
    hint: RetryHint | None = None
    next_retry_delay_ms: int | None = None
    details: Payload | None = None
    cause: Failure | None = None

    @property
    def may_be_retried(self) -> bool:
        """Whether another attempt may follow, if attempts are left."""
        if self.hint is not None:
            return self.hint is RetryHint.RETRY
        return self.kind not in NOT_RETRIED
