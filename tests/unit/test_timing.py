"""The times of the lease protocol: every one follows from the length of a lease."""

from __future__ import annotations

import pytest

from redflow_server.domain.timing import Timing

TABLE = {
    200: {
        "heartbeat": 66,
        "delivery": 100,
        "ack": 100,
        "fence_margin": 40,
        "silence": 1000,
        "flush": 25,
        "reap": 20,
        "quiet": 66,
    },
    1000: {
        "heartbeat": 333,
        "delivery": 500,
        "ack": 500,
        "fence_margin": 200,
        "silence": 1000,
        "flush": 125,
        "reap": 100,
        "quiet": 333,
    },
    30_000: {
        "heartbeat": 10_000,
        "delivery": 15_000,
        "ack": 5000,
        "fence_margin": 5000,
        "silence": 25_000,
        "flush": 1000,
        "reap": 1000,
        "quiet": 5000,
    },
}


@pytest.mark.parametrize("lease_ms", TABLE)
def test_all_times_follow_from_the_lease(lease_ms: int) -> None:
    timing = Timing(lease_ms)
    assert TABLE[lease_ms] == {
        "heartbeat": timing.heartbeat_ms,
        "delivery": timing.delivery_ms,
        "ack": timing.ack_ms,
        "fence_margin": timing.fence_margin_ms,
        "silence": timing.silence_ms,
        "flush": timing.receipt_flush_ms,
        "reap": timing.reap_ms,
        "quiet": timing.quiet_ms,
    }


LEASES_MS = (200, 250, 333, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 600_000)


@pytest.mark.parametrize("lease_ms", LEASES_MS)
def test_a_worker_that_misses_one_heartbeat_keeps_its_lease_and_fences_itself_before_it_ends(lease_ms: int) -> None:
    timing = Timing(lease_ms)
    fence_ms = timing.lease_ms - timing.fence_margin_ms
    assert 2 * timing.heartbeat_ms < fence_ms < timing.lease_ms


@pytest.mark.parametrize("lease_ms", LEASES_MS)
def test_receipts_are_written_and_missed_before_a_claim_would_be_too_old_to_pass_on(lease_ms: int) -> None:
    timing = Timing(lease_ms)
    assert timing.receipt_flush_ms < timing.delivery_ms
    assert timing.ack_ms <= timing.delivery_ms < timing.lease_ms


@pytest.mark.parametrize("lease_ms", LEASES_MS)
def test_a_peer_may_miss_a_heartbeat_without_being_taken_for_gone(lease_ms: int) -> None:
    timing = Timing(lease_ms)
    assert timing.silence_ms >= max(1000, 2 * timing.heartbeat_ms)


@pytest.mark.parametrize("lease_ms", LEASES_MS)
def test_expired_leases_are_looked_for_at_least_ten_times_a_lease_and_at_most_fifty_times_a_second(
    lease_ms: int,
) -> None:
    assert 20 <= Timing(lease_ms).reap_ms <= lease_ms / 10


@pytest.mark.parametrize("lease_ms", LEASES_MS)
def test_what_counts_as_an_outage_is_longer_than_pauses_between_looks_and_short_enough_to_renew_after_any_other(
    lease_ms: int,
) -> None:
    timing = Timing(lease_ms)
    # A worker that missed a heartbeat by a shorter one has sent the next before its lease ends.
    assert timing.quiet_ms <= max(timing.heartbeat_ms, lease_ms * 3 // 10)
    assert timing.quiet_ms >= 3 * timing.reap_ms
