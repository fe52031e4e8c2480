"""The one place that logs what went wrong and counts what happened."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

from redflow_server.domain.errors import Refusal
from redflow_server.domain.ids import new_name

log = logging.getLogger("redflow")


class Telemetry:
    """Counters and the log of a gateway."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()

    def count(self, name: str, number: int = 1) -> None:
        """Adds to a counter."""
        self.counters[name] += number

    def fault(self, where: str, error: BaseException | None) -> str:
        """Logs an unexpected fault once, with an id that the caller may be told; refusals are only counted."""
        if isinstance(error, Refusal):
            self.count(f"refused.{error.reason}")
            return ""
        fault_id = new_name()
        self.count("faults")
        log.error("fault %s in %s", fault_id, where, exc_info=error)
        return fault_id

    def watch(self, where: str, future: asyncio.Future[Any]) -> None:  # Any: only the failure matters
        """Sees the end of work that nobody awaits."""
        if not future.cancelled() and future.exception() is not None:
            self.fault(where, future.exception())
