"""Renewing many leases at once: in calls that are bounded, by leases and by waits, and with an answer for each."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence

import pytest

from redflow_server.domain.leases import LeaseStanding, LeaseToRenew, ListedLease, Stamp, Standing
from redflow_server.engine.renewal import SLICE, SLICE_WAITS, Renewal
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.store import Store
from tests.builders import STAMP, start_one
from tests.engine.parts import TIMING, Stores
from tests.wait_builders import an_event_wait, some_waits


class CountingStore(Store):
    """The store itself; `calls` has for each renewal how many leases and waits it named."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.calls: list[tuple[int, int]] = []

    def renew(
        self, stamp: Stamp, leases: Sequence[LeaseToRenew], lease_ms: int, grace_ms: int
    ) -> Future[tuple[LeaseStanding, ...]]:
        self.calls.append((len(leases), sum(len(lease.listed.open_waits) for lease in leases)))
        return super().renew(stamp, leases, lease_ms, grace_ms)


@pytest.mark.parametrize(
    ("waits", "calls"),
    [
        ([0] * SLICE, [(SLICE, 0)]),
        ([0] * (SLICE + 1), [(SLICE, 0), (1, 0)]),
        ([SLICE_WAITS // 2] * 3, [(2, SLICE_WAITS), (1, SLICE_WAITS // 2)]),
        ([1, SLICE_WAITS + 1, 1], [(1, 1), (1, SLICE_WAITS + 1), (1, 1)]),
        ([], []),
    ],
    ids=["one slice", "one lease more", "many waits", "more waits of one lease", "none"],
)
async def test_a_call_names_no_more_leases_and_waits_than_a_script_should_look_at(
    stores: Stores, waits: list[int], calls: list[tuple[int, int]]
) -> None:
    store = await stores.open(CountingStore)
    assert isinstance(store, CountingStore)
    leases = await asyncio.gather(*(start_one(store, queue=f"q{number}") for number in range(len(waits))))
    names = [f"step {number}" for number in range(max(waits, default=0))]
    listed = [ListedLease(lease.lease_token, tuple(names[:count])) for lease, count in zip(leases, waits, strict=True)]
    store.calls.clear()

    standings = await Renewal(store, TIMING).renew(STAMP, listed)

    assert store.calls == calls
    assert [standing.lease_token for standing in standings] == [lease.lease_token for lease in leases]
    assert {standing.standing for standing in standings} <= {Standing.HELD}
    assert [len(standing.waits_unknown) for standing in standings] == waits


async def test_what_is_no_lease_token_is_lost_and_spoils_no_other(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, an_event_wait("a")))
    listed = [ListedLease("nonsense", ("a",)), ListedLease(lease.lease_token, ("a", "b"))]

    standings = {one.lease_token: one for one in await Renewal(store, TIMING).renew(STAMP, listed)}

    assert standings["nonsense"] == LeaseStanding("nonsense", Standing.LOST)
    held = standings[lease.lease_token]
    assert (held.standing, held.waits_over, held.waits_unknown) == (Standing.HELD, (), ("b",))
