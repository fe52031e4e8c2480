"""A store that notes how it is claimed from."""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import Callable

from redflow_server.domain.leases import Claim, Claimed, Lane
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.store import Store


class WatchedStore(Store):
    """The store itself; `claims` are those that were asked for, `met` the lanes that two of them named at once."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.claims: list[Claim] = []
        self.met: list[Lane] = []
        self.on_claim: Callable[[Claim], None] | None = None
        self._under_way: Counter[Lane] = Counter()

    def claim(self, claim: Claim) -> Future[Claimed]:
        self.claims.append(claim)
        self.met += [lane for lane in claim.lanes if self._under_way[lane]]
        self._under_way.update(claim.lanes)
        if self.on_claim is not None:
            self.on_claim(claim)
        future = super().claim(claim)
        future.add_done_callback(lambda _: self._under_way.subtract(claim.lanes))
        return future
