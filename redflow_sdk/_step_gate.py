"""When a step of one delivery may begin. On the worker's loop, but for what threads ask."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Final

from redflow_sdk._step_log import StepLog
from redflow_sdk._suspension import Suspension
from redflow_sdk.errors import NonRetriableError

step_at_work: Final[ContextVar[str | None]] = ContextVar("step_at_work", default=None)
"""The step whose function is called."""


class StepGate:
    """Open while the handler is at work and its run is not about to be set aside."""

    def __init__(self, log: StepLog, suspension: Suspension) -> None:
        self._log = log
        self._suspension = suspension
        self._is_closed = False

    @property
    def is_stopped(self) -> bool:
        """Whether the handler has to end."""
        return self._log.stop_order is not None

    def close(self) -> None:
        """The handler has ended: no step begins any more, and no wait goes on."""
        self._is_closed = True
        self._suspension.close()

    def check_open(self, name: str) -> None:
        """Raises RuntimeError for a step that begins after its handler has returned."""
        if self._is_closed and not self.is_stopped:
            raise RuntimeError(f"step {name!r} begins after its handler has returned; await what you start")

    def check_wait(self, name: str) -> None:
        """Raises as `check_open` does and NonRetriableError within a step; CancelledError when the run was canceled."""
        self.check_open(name)
        within = step_at_work.get()
        if within is not None:
            # The run is not set aside while a step is at work, and this one would be until the wait is over.
            raise NonRetriableError(
                f"step {name!r} waits within step {within!r}, which would never end; wait in the handler"
            )
        if self.is_stopped:
            raise asyncio.CancelledError("the run was canceled")

    async def begin(self) -> None:
        """A step is at work, as soon as one may be. Raises CancelledError when none may any more."""
        while True:
            if self.is_stopped:
                raise asyncio.CancelledError("the run was canceled")
            if self._suspension.begin_step():
                return
            await self._suspension.decided()

    def begins_at_once(self) -> bool:
        """A step is at work, if one may be now."""
        return not self.is_stopped and self._suspension.begin_step()

    def end(self) -> None:
        """The step is no longer at work."""
        self._suspension.end_step()
