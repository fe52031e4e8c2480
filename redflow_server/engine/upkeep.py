"""What has to be done because time passes, each as one bounded pass. Every gateway does all of it: a pass finds what is
due inside a script, so two of them never do the same thing twice, and there is no leader to lose.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from redflow_server.domain.leases import Lane
from redflow_server.domain.states import RunStatus
from redflow_server.domain.timing import Timing
from redflow_server.engine.dispatcher import Dispatcher
from redflow_server.store.replies import Due, Passed
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry, log

SLICE: Final = 100
SWEEP_SLICE: Final = 25
UNKNOWN_GRACE_MS: Final = 3_000
SWEPT: Final = (RunStatus.SCHEDULED, RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)


def _seven_days() -> dict[RunStatus, int]:
    return dict.fromkeys((RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELED), 7 * 24 * 3600 * 1000)


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """How long things are kept."""

    retention_ms: dict[RunStatus, int] = field(default_factory=_seven_days)
    unknown_grace_ms: int = UNKNOWN_GRACE_MS


class Upkeep:
    """The passes. Each says whether more is waiting to be done now."""

    def __init__(
        self,
        store: Store,
        timing: Timing,
        dispatcher: Dispatcher,
        telemetry: Telemetry,
        settings: UpkeepSettings,
    ) -> None:
        self._store = store
        self._timing = timing
        self._dispatcher = dispatcher
        self._telemetry = telemetry
        self._settings = settings
        self._swept_seqs: dict[RunStatus, int | None] = dict.fromkeys(SWEPT)

    async def look_ahead(self) -> Due:
        """What is due when; and which lanes have filled, in case a message about one was lost."""
        known_change = self._dispatcher.known_change
        due = await self._store.due(self._dispatcher.confirmed_change)
        self._dispatcher.lanes_read(due.lanes, due.lane_change, known_change)
        return due

    async def promote(self) -> Passed:
        """Moves due runs to their lanes."""
        passed = await self._store.promote(SLICE)
        self._telemetry.count("runs.promoted", passed.count)
        return passed

    async def reap(self) -> bool:
        """Takes expired leases back."""
        reaped = await self._store.reap(self._timing.lease_ms, self._timing.quiet_ms, SLICE)
        self._telemetry.count("leases.expired", reaped.total)
        return reaped.total == SLICE

    async def expire(self) -> Passed:
        """Ends runs whose time is up."""
        passed = await self._store.expire(SLICE)
        self._telemetry.count("runs.timed_out", passed.count)
        if passed.count:
            log.info("ended because a time-out of theirs has passed: %d runs", passed.count)
        return passed

    async def fire_timers(self) -> Passed:
        """Ends waits whose time has come."""
        passed = await self._store.fire_timers(SLICE)
        self._telemetry.count("waits.timers_fired", passed.count)
        return passed

    async def deliver_events(self) -> bool:
        """Tells more of the waits of an event that had too many for one script."""
        return await self._store.deliver_events()

    async def forget_events(self) -> bool:
        """Forgets events that were remembered for long enough."""
        return await self._store.forget_events()

    async def apply_outbox(self) -> Passed:
        """Does to other runs what the ends of runs have left to be done."""
        passed = await self._store.apply_outbox(SLICE)
        self._telemetry.count("outbox.applied", passed.count)
        return passed

    async def fan_out(self) -> bool:
        """Starts more of the runs of an event that had too many subscribers for one script."""
        fanned_out = await self._store.fan_out()
        self._telemetry.count("events.fanned_out", fanned_out.count)
        return fanned_out.has_more

    async def purge(self) -> bool:
        """Removes runs that were kept long enough."""
        purged = await self._store.purge(self._settings.retention_ms, SLICE)
        self._telemetry.count("runs.purged", purged.purged)
        return purged.seen == SLICE

    async def sweep(self) -> bool:
        """Looks at a slice of the open runs of each status, and repairs what must not be."""
        for status in SWEPT:
            swept = await self._store.sweep(status, self._swept_seqs[status], SWEEP_SLICE)
            self._swept_seqs[status] = swept.next_seq
            for repair in swept.repairs:
                self._telemetry.count(f"repaired.{repair.what}")
                log.warning("repaired run %s: its %s was missing", repair.run_id, repair.what)
        return False

    async def fail_unknown(self) -> bool:
        """Fails runs of workflows that nobody knows, in queues that a worker here asked for by name."""
        grace_ms = self._settings.unknown_grace_ms
        heard_before = time.monotonic() - grace_ms / 1000
        for lane, heard_at in list(self._dispatcher.unserved.items()):
            if heard_at <= heard_before:
                await self._fail_unknown_in(lane)
        return False

    async def _fail_unknown_in(self, lane: Lane) -> None:
        offset: int | None = 0
        while offset is not None:
            unknown = await self._store.fail_unknown(lane, self._settings.unknown_grace_ms, offset, SLICE)
            self._telemetry.count("runs.unknown_workflow", unknown.failed)
            offset = unknown.next_offset
            if unknown.is_empty:
                self._dispatcher.unserved.pop(lane, None)
