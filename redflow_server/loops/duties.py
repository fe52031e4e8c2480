"""The whole timetable of a gateway on one screen: every duty, its pass and how often."""

from __future__ import annotations

from redflow_server.domain.timing import Timing
from redflow_server.engine.schedules import Schedules
from redflow_server.engine.sessions import Sessions
from redflow_server.engine.upkeep import Upkeep
from redflow_server.engine.waiters import Waiters
from redflow_server.loops.loop import Loop
from redflow_server.loops.timetable import Timetable
from redflow_server.telemetry import Telemetry


class Duties:
    """All loops of a gateway."""

    def __init__(
        self,
        upkeep: Upkeep,
        schedules: Schedules,
        sessions: Sessions,
        waiters: Waiters,
        *,
        timing: Timing,
        telemetry: Telemetry,
    ) -> None:
        async def promote() -> bool:
            return self.timetable.passed("scheduled", await upkeep.promote())

        async def expire() -> bool:
            return self.timetable.passed("deadlines", await upkeep.expire())

        async def fire_timers() -> bool:
            return self.timetable.passed("timers", await upkeep.fire_timers())

        async def fire() -> bool:
            due = await schedules.fire()
            return self.timetable.is_due("cron", due.next_at_ms)

        async def work_off() -> bool:
            has_more = self.timetable.passed("outbox", await upkeep.apply_outbox())
            has_more = await upkeep.deliver_events() or has_more
            return await upkeep.fan_out() or has_more

        async def keep_sessions() -> bool:
            await sessions.tick()
            return False

        async def keep_registry() -> bool:
            await sessions.announce()
            await sessions.assert_registry()
            return False

        async def keep_waiters() -> bool:
            await waiters.tick()
            return False

        self.promoter = Loop("promoter", promote, 30.0, telemetry)
        self.deadlines = Loop("deadlines", expire, 30.0, telemetry)
        self.timers = Loop("timers", fire_timers, 30.0, telemetry)
        self.cron = Loop("cron", fire, 30.0, telemetry)
        self.outbox = Loop("outbox", work_off, 30.0, telemetry)
        self.reaper = Loop("reaper", upkeep.reap, timing.reap_ms / 1000, telemetry)
        self.sessions = Loop("sessions", keep_sessions, timing.receipt_flush_ms / 1000, telemetry, jitter=0.0)
        self.registry = Loop("registry", keep_registry, 10.0, telemetry)
        self.waiters = Loop("waiters", keep_waiters, 1.0, telemetry)
        self.unknown = Loop("unknown", upkeep.fail_unknown, 1.0, telemetry)
        self.retention = Loop("retention", upkeep.purge, 5.0, telemetry)
        self.event_memory = Loop("event memory", upkeep.forget_events, 5.0, telemetry)
        self.sweep = Loop("sweep", upkeep.sweep, 60.0, telemetry)
        self.timetable = Timetable(
            upkeep.look_ahead,
            {
                "scheduled": self.promoter,
                "deadlines": self.deadlines,
                "timers": self.timers,
                "cron": self.cron,
                "outbox": self.outbox,
            },
        )
        self.look_ahead = Loop("timetable", self.timetable.tick, 1.0, telemetry)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """All of them, in the order in which they start."""
        return (
            *(self.look_ahead, self.promoter, self.deadlines, self.timers, self.cron, self.outbox, self.reaper),
            *(self.sessions, self.registry, self.waiters, self.unknown, self.retention, self.event_memory, self.sweep),
        )

    @property
    def dead(self) -> tuple[str, ...]:
        """The loops that should run and do not, be it that a pass of theirs does not end."""
        return tuple(loop.name for loop in self.loops if loop.is_stuck or not loop.is_alive)

    def start(self) -> None:
        """Starts all loops."""
        for loop in self.loops:
            loop.start()

    async def stop(self) -> None:
        """Stops all loops."""
        self.timetable.stop()
        for loop in self.loops:
            await loop.stop()

    def catch_up(self) -> None:
        """Messages may have been missed: what they could have been about is looked at now."""
        for loop in (
            self.look_ahead,
            self.promoter,
            self.deadlines,
            self.timers,
            self.cron,
            self.outbox,
            self.waiters,
            self.sessions,
        ):
            loop.wake()
