"""Scripts about what is due because time has passed."""

from __future__ import annotations

from asyncio import Future

from redflow_server.domain.leases import Lane
from redflow_server.domain.states import RunStatus
from redflow_server.store import replies
from redflow_server.store.calls.scripted import Scripted
from redflow_server.store.replies import Due, Passed, Purged, Reaped, Swept, Unknown
from redflow_server.store.wire import Argument


class UpkeepScripts(Scripted):
    """Promoting, reaping, expiring, purging, repairing."""

    def due(self, lane_change: int) -> Future[Due]:
        """When the next thing of each kind is due, and the lanes that have filled since a change number."""
        return self._pipeline.call("due", (self._now, lane_change), replies.due)

    def promote(self, limit: int) -> Future[Passed]:
        """Moves scheduled runs that are due to their lanes."""
        return self._pipeline.call("promote", (self._now, limit), replies.passed)

    def reap(self, lease_ms: int, quiet_ms: int, limit: int) -> Future[Reaped]:
        """Takes expired leases away, unless nobody could have renewed for `quiet_ms`."""
        arguments = (self._now, lease_ms, quiet_ms, self._max_losses, limit)
        return self._pipeline.call("reap", arguments, lambda reply: Reaped(*reply))

    def fire_timers(self, limit: int) -> Future[Passed]:
        """Ends the waits whose time has come."""
        return self._pipeline.call("fire_timers", (self._now, limit), replies.passed)

    def expire(self, limit: int) -> Future[Passed]:
        """Ends runs whose start or run time-out has passed."""
        return self._pipeline.call("expire", (self._now, limit), replies.passed)

    def fail_unknown(self, lane: Lane, grace_ms: int, offset: int, limit: int) -> Future[Unknown]:
        """Fails queued runs of a workflow that nobody has registered, from one place in their lane on."""
        arguments = (self._now, lane.queue, lane.workflow, grace_ms, offset, limit)
        return self._pipeline.call("fail_unknown", arguments, lambda reply: Unknown(*reply))

    def purge(self, retention_ms: dict[RunStatus, int], limit: int) -> Future[Purged]:
        """Removes runs that ended longer ago than they are kept."""
        arguments: list[Argument] = [self._now, limit]
        for status, keep_ms in retention_ms.items():
            arguments += (status, keep_ms)
        return self._pipeline.call("purge", arguments, lambda reply: Purged(*reply))

    def sweep(self, status: RunStatus, before_seq: int | None, limit: int) -> Future[Swept]:
        """Repairs runs of a status that stand in no place."""
        before = "" if before_seq is None else before_seq
        return self._pipeline.call("sweep", (self._now, status, before, limit), replies.swept)

    def apply_outbox(self, limit: int) -> Future[Passed]:
        """Applies what the ends of runs left to be done to other runs."""
        return self._pipeline.call("apply_outbox", (self._now, limit), replies.passed)
