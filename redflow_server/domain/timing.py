"""The times of the lease protocol, all derived from one number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """What the gateway dictates to workers and keeps itself, in milliseconds."""

    lease_ms: int = 30_000
    cancel_grace_ms: int = 30_000

    @property
    def heartbeat_ms(self) -> int:
        """Between two heartbeats of a worker."""
        return self.lease_ms // 3

    @property
    def delivery_ms(self) -> int:
        """An assignment that reaches its gateway later than this after its claim is not passed on."""
        return self.lease_ms // 2

    @property
    def ack_ms(self) -> int:
        """A worker that has not acknowledged an assignment by then gets nothing new until it has."""
        return min(5000, self.lease_ms // 2)

    @property
    def fence_margin_ms(self) -> int:
        """A worker stops its handlers this long before their lease would end."""
        return min(5000, self.lease_ms // 5)

    @property
    def silence_ms(self) -> int:
        """A peer that was not heard for this long is gone."""
        return max(1000, self.heartbeat_ms * 5 // 2)

    @property
    def receipt_flush_ms(self) -> int:
        """Receipts of assignments are written to the store at least this often."""
        return min(1000, max(20, self.delivery_ms // 4))

    @property
    def reap_ms(self) -> int:
        """Between two looks for expired leases."""
        return min(1000, max(20, self.lease_ms // 10))

    @property
    def quiet_ms(self) -> int:
        """When nobody has looked for expired leases for longer, workers could not renew theirs and get time to do it.

        A shorter outage costs a worker at most one heartbeat; the next one comes while there is a third of the lease
        left. It is more than any pause between two looks that follow each other.
        """
        return max(3 * self.reap_ms, min(5000, self.heartbeat_ms))
