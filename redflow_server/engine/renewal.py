"""Renewing many leases: in slices, so that no script works on more runs than it should."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain
from typing import Final

from redflow_server.domain.ids import run_id_of
from redflow_server.domain.leases import LeaseStanding, Stamp, Standing
from redflow_server.domain.timing import Timing
from redflow_server.store.store import Store

SLICE: Final = 100


class Renewal:
    """Renews leases for sessions of one gateway."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing

    async def renew(self, stamp: Stamp, tokens: Iterable[str], age_ms: int = 0) -> tuple[LeaseStanding, ...]:
        """How leases stand after their renewal, which counts from `age_ms` ago. What is no lease token at all is lost,
        too.
        """
        leases, standings = [], []
        for token in tokens:
            run_id = run_id_of(token)
            if run_id is None:
                standings.append(LeaseStanding(token, Standing.LOST))
            else:
                leases.append((run_id, token))
        lease_ms, grace_ms = max(0, self._timing.lease_ms - age_ms), self._timing.cancel_grace_ms
        slices = [leases[at : at + SLICE] for at in range(0, len(leases), SLICE)]
        renewed = await asyncio.gather(*(self._store.renew(stamp, part, lease_ms, grace_ms) for part in slices))
        return (*chain.from_iterable(renewed), *standings)
