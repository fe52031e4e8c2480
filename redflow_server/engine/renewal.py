"""Renewing many leases: in slices, so that no script works on more runs than it should."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from redflow_server.domain.ids import run_id_of
from redflow_server.domain.leases import LeaseStanding, LeaseToRenew, ListedLease, Stamp, Standing
from redflow_server.domain.timing import Timing
from redflow_server.store.store import Store

SLICE: Final = 100
SLICE_WAITS: Final = 2_000
"""Leases, and waits of theirs, that one script looks at. The waits of one lease stay together."""


class Renewal:
    """Renews leases for sessions of one gateway."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing

    async def renew(self, stamp: Stamp, listed: Iterable[ListedLease], age_ms: int = 0) -> tuple[LeaseStanding, ...]:
        """How leases stand after their renewal, which counts from `age_ms` ago. What is no lease token at all is lost,
        too.
        """
        leases: list[LeaseToRenew] = []
        standings = []
        for lease in listed:
            run_id = run_id_of(lease.lease_token)
            if run_id is None:
                standings.append(LeaseStanding(lease.lease_token, Standing.LOST))
            else:
                leases.append(LeaseToRenew(run_id, lease))
        lease_ms, grace_ms = max(0, self._timing.lease_ms - age_ms), self._timing.cancel_grace_ms
        renewing = [self._store.renew(stamp, part, lease_ms, grace_ms) for part in _slices(leases)]
        renewed = await asyncio.gather(*renewing)
        return (*chain.from_iterable(renewed), *standings)


def _slices(leases: Iterable[LeaseToRenew]) -> Iterator[list[LeaseToRenew]]:
    part: list[LeaseToRenew] = []
    waits = 0
    for lease in leases:
        count = len(lease.listed.open_waits)
        waits += count
        if part and (len(part) == SLICE or waits > SLICE_WAITS):
            yield part
            part, waits = [], count
        part.append(lease)
    if part:
        yield part
