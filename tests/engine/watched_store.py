"""Stores that note how they are claimed from, or fail to answer once."""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import Callable, Sequence

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.leases import Claim, Claimed, Lane
from redflow_server.domain.runs import Step
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.store import Store


class WatchedStore(Store):
    """The store itself; `claims` are those for runs that were asked for, `met` the lanes that two of them named at
    once.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.claims: list[Claim] = []
        self.met: list[Lane] = []
        self.on_claim: Callable[[Claim], None] | None = None
        self._under_way: Counter[Lane] = Counter()

    def claim(self, claim: Claim) -> Future[Claimed]:
        if claim.count:  # else it only looks whether lanes are empty
            self.claims.append(claim)
        self.met += [lane for lane in claim.lanes if self._under_way[lane]]
        self._under_way.update(claim.lanes)
        if self.on_claim is not None:
            self.on_claim(claim)
        future = super().claim(claim)
        future.add_done_callback(lambda _: self._under_way.subtract(claim.lanes))
        return future


class ForgetfulStore(Store):
    """The store itself, but that the next reading for a worker fails."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.fails = False

    def read_steps(
        self,
        run_id: str,
        max_bytes: int,
        names: Sequence[str] = (),
        lease_token: str = "",
        *,
        max_value_bytes: int | None = None,
    ) -> Future[tuple[Step, ...]]:
        if lease_token and self.fails:
            self.fails = False
            failed: Future[tuple[Step, ...]] = Future()
            failed.set_exception(StoreUnavailable())
            return failed
        return super().read_steps(run_id, max_bytes, names, lease_token, max_value_bytes=max_value_bytes)
