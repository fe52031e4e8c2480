"""Steps on record at the gateway: what an assignment could not carry is fetched, what the store has lost is told again.

Lives on the io thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from redflow_sdk._leases import Lease, Leases
from redflow_sdk._messages import Assignment, StepKind, StepReport, StepSnapshot
from redflow_sdk._session import Line
from redflow_sdk._transport.stream import BrokenStream

T = TypeVar("T")

log = logging.getLogger("redflow.worker")

ASK_AGAIN_S: Final = 0.2
"""How long until a question is asked again that no session could answer."""
TELL_AGAIN_S: Final = 0.2
"""How long until the store, which has lost steps once more, is told of them the second time; twice as long then."""
MAX_TIMES_TOLD: Final = 6


class OnRecord:
    """What the store has, or should have, of the runs of one worker."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._session: Line | None = None

    def ask(self, session: Line | None) -> None:
        """Whom to ask from now on; None while there is nobody."""
        self._session = session

    async def step(self, token: str, name: str) -> StepSnapshot | None:
        """A step whose output did not fit into the assignment; None when it or the lease is lost."""
        return await self._answered(token, lambda session: session.fetch(token, name))

    async def steps(self, token: str) -> tuple[StepSnapshot, ...] | None:
        """All steps of a run, when an assignment could not carry them; None when the lease is lost."""
        steps = await self._answered(token, lambda session: session.fetch_all(token))
        lease = self._leases.get(token)
        if steps is not None and lease is not None:
            lease.know(steps)
        return steps

    async def _answered(self, token: str, question: Callable[[Line], Awaitable[T]]) -> T | None:
        while token in self._leases:
            if self._session is not None:
                try:
                    return await question(self._session)
                except BrokenStream as broken:
                    log.debug("fetching steps: %s", broken)
            await asyncio.sleep(ASK_AGAIN_S)
        return None

    async def reports_again(self, lease: Lease, times_told: int) -> list[StepReport]:
        """Everything this worker knows to be on record, to be told again to a store that has lost some of it.

        The first time at once, then less and less often.
        """
        if times_told:
            await asyncio.sleep(TELL_AGAIN_S * 2**times_told * random.uniform(0.5, 1.0))
        reports: list[StepReport] = []
        for step in lease.on_record:
            if step.kind is not StepKind.FUNCTION:
                continue  # nobody but the gateway may say what became of a wait or an event
            known = await self.step(lease.assignment.lease_token, step.name) if step.is_by_reference else step
            if known is not None:
                reports.append(_report_of(known, lease.assignment))
        # They ask for no steps before them: those may be lost, too.
        return [*reports, *(replace(report, steps_recorded=0) for report in lease.reported)]


def _report_of(step: StepSnapshot, assignment: Assignment) -> StepReport:
    """A step of an earlier delivery as a report of this one. What failed in an earlier attempt is to be run again."""
    return StepReport(
        lease_token=assignment.lease_token,
        steps_recorded=0,
        name=step.name,
        seq=step.seq,
        output=step.output,
        failure=step.failure,
        elapsed_s=0.0,
        is_final=step.is_final and step.attempt == assignment.attempt,
        tries=step.tries if step.attempt == assignment.attempt else 1,
    )
