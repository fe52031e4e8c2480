"""When the next thing of each kind is due: read from the store once a second, heard from other gateways in between.

Redis' clock decides what is due. The timetable learns by how much it is off the local one, and wakes loops in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from redflow_server.loops.loop import Loop
from redflow_server.store.replies import Due, Passed


class Timetable:
    """Wakes the loop of each kind when something of that kind becomes due."""

    def __init__(self, read: Callable[[], Awaitable[Due]], loops: Mapping[str, Loop]) -> None:
        self._read = read
        self._loops = loops
        self._ahead_s = 0.0
        self._alarms: dict[str, tuple[float, asyncio.TimerHandle]] = {}

    async def tick(self) -> bool:
        """Reads what is due when."""
        due = await self._read()
        self._ahead_s = due.now_ms / 1000 - asyncio.get_running_loop().time()
        for kind, at_ms in (
            ("scheduled", due.scheduled_at_ms),
            ("deadlines", due.deadline_at_ms),
            ("timers", due.timer_at_ms),
            ("cron", due.cron_at_ms),
            ("outbox", due.outbox_at_ms),
        ):
            if at_ms is not None:
                self.due(kind, at_ms)
        return False

    def due(self, kind: str, at_ms: int) -> None:
        """Something of this kind is due at this time."""
        loop = asyncio.get_running_loop()
        # Half a millisecond late rather than early: a pass that comes early finds nothing.
        at = at_ms / 1000 - self._ahead_s + 0.0005
        set_for, alarm = self._alarms.get(kind, (0.0, None))
        if alarm is not None:
            if set_for <= at:
                return
            alarm.cancel()
        self._alarms[kind] = (at, loop.call_at(at, self._ring, kind))

    def _ring(self, kind: str) -> None:
        # Of an alarm that rings early, as uvloop's do by half a millisecond, nobody may think that it is still to ring.
        del self._alarms[kind]
        self._loops[kind].wake()

    def passed(self, kind: str, passed: Passed) -> bool:
        """A pass has dealt with what was due; says whether more is due now, and sees that the next is in time."""
        return self.is_due(kind, passed.next_at_ms)

    def is_due(self, kind: str, next_at_ms: int | None) -> bool:
        """Whether the next thing of a kind, None when there is none, is due now; if not, sees that it is in time."""
        if next_at_ms is None:
            return False
        if next_at_ms / 1000 <= asyncio.get_running_loop().time() + self._ahead_s:
            return True
        self.due(kind, next_at_ms)
        return False

    def stop(self) -> None:
        """Forgets all alarms."""
        for _, alarm in self._alarms.values():
            alarm.cancel()
