"""Step outputs that were too large for an assignment, for the holder of the lease."""

from __future__ import annotations

from typing import Final

from redflow_server.domain.errors import LeaseLost
from redflow_server.domain.ids import run_id_of
from redflow_server.domain.runs import Step, StepPage
from redflow_server.store.store import Store

OUTPUT_BYTES: Final = 3 * 1024 * 1024


class Steps:
    """Steps under a lease."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def outputs(self, lease_token: str, names: tuple[str, ...], limit: int, offset: int) -> StepPage:
        """A page of the named steps, or of all, with their values as far as they fit. Raises LeaseLost."""
        run_id = run_id_of(lease_token)
        if run_id is None:
            raise LeaseLost
        if not names:
            index = await self._store.read_steps(run_id, 0, (), lease_token)
            names = tuple(step.name for step in index)
        page = names[offset : offset + limit]
        steps = await self._store.read_steps(run_id, OUTPUT_BYTES, page, lease_token) if page else ()
        kept: list[Step] = []
        for step in steps:
            if step.is_left_out and kept:
                break
            kept.append(step)
        end = offset + len(kept)
        return StepPage(tuple(kept), end if end < len(names) else None)
