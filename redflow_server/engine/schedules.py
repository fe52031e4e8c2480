"""Cron schedules: what is planned when a workflow is registered, and what is fired when its time has come.

Occurrences are computed here, by the rule in `domain/cron.py`, and decided on in scripts: one is fired only while it is
the one that is planned, so that of several gateways one fires it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from redflow_server.domain.cron import CronRule
from redflow_server.domain.errors import InvalidInput
from redflow_server.domain.ids import run_id_for, schedule_id_for
from redflow_server.domain.names import check_name
from redflow_server.domain.registry import CronSchedule, PlannedSchedule, WorkflowDefinition
from redflow_server.domain.schedules import DueSchedule, DueSchedules, Occurrence, Plan, Schedule, ScheduleProblem
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry

log = logging.getLogger("redflow.gateway")

SLICE: Final = 100
LATE_MS: Final = 60_000
MAX_SKIPPED: Final = 10_000
"""Occurrences that are counted one by one when they were missed."""


class Schedules:
    """The cron schedules of the registry."""

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry

    async def plan(self, definitions: Sequence[WorkflowDefinition]) -> Plan:
        """The schedules of definitions with their next occurrences, and those that can have none."""
        if not any(definition.cron for definition in definitions):
            return Plan()
        now_ms = (await self._store.due_schedules(0)).now_ms
        # In a thread: a set of thousands takes seconds, and leases have to be renewed meanwhile.
        return await asyncio.to_thread(_plan, definitions, now_ms)

    async def fire(self) -> DueSchedules:
        """Starts the runs whose time has come, each schedule by itself. Raises StoreUnavailable, StoreFull."""
        due = await self._store.due_schedules(SLICE)
        fired = await asyncio.gather(
            *(self._fire(schedule, due.now_ms) for schedule in due.schedules), return_exceptions=True
        )
        for outcome in fired:
            if outcome is not None:
                raise outcome
        return due

    async def _fire(self, due: DueSchedule, now_ms: int) -> None:
        try:
            # After an outage the occurrences that have passed are counted, which may take a second.
            is_late = now_ms - due.occurrence_ms > LATE_MS
            occurrence = await asyncio.to_thread(_occurrence, due, now_ms) if is_late else _occurrence(due, now_ms)
        except (InvalidInput, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # What stands on record was put there by foreign hands: it must not keep the others from firing.
            log.error("schedule %s cannot be evaluated: %s", due.schedule_id, error)
            await self._store.stall_schedule(due, f"it cannot be evaluated: {error}")
            return
        if not await self._store.fire_schedule(occurrence):
            return
        self._telemetry.count("schedules.fired", 1)
        if occurrence.skipped:
            self._telemetry.count("schedules.skipped", occurrence.skipped)
            log.warning(
                "schedule %s of %r was late: %d more occurrences have passed, and one run is started for all",
                *(due.schedule_id, occurrence.workflow, occurrence.skipped),
            )

    async def list(self, workflows: Sequence[str]) -> tuple[Schedule, ...]:
        """The schedules of workflows, in the order of their names."""
        return await self._store.read_schedules(workflows) if workflows else ()


def check_schedule_ids(definition: WorkflowDefinition) -> None:
    """Raises InvalidInput when two schedules of a workflow were given one id."""
    given = [cron.schedule_id for cron in definition.cron if cron.schedule_id]
    for number, schedule_id in enumerate(given):
        if schedule_id in given[:number]:
            rule = f"must be unique in workflow {definition.name!r}: Duplicate cron trigger id"
            raise InvalidInput("workflow.cron.schedule_id", rule, schedule_id)


def _plan(definitions: Sequence[WorkflowDefinition], now_ms: int) -> Plan:
    planned: list[PlannedSchedule] = []
    problems: list[ScheduleProblem] = []
    for definition in definitions:
        for cron in definition.cron:
            try:
                rule = CronRule.parse(cron.expression, cron.timezone)
            except InvalidInput as refusal:
                which = f"{cron.schedule_id!r} " if cron.schedule_id else ""
                message = f"schedule {which}({cron.expression!r} in {cron.timezone or 'UTC'!r}): {refusal}"
                problems.append(ScheduleProblem(definition.name, message))
            else:
                schedule_id = _schedule_id(definition.name, cron)
                planned.append(PlannedSchedule(schedule_id, definition.name, cron, rule.next_after(now_ms)))
    return Plan(tuple(planned), tuple(problems))


def _schedule_id(workflow: str, cron: CronSchedule) -> str:
    if cron.schedule_id:
        return schedule_id_for("named", workflow, cron.schedule_id)
    digest = cron.input.digest if cron.input else ""
    return schedule_id_for("derived", workflow, cron.expression, cron.timezone, digest)


def _occurrence(due: DueSchedule, now_ms: int) -> Occurrence:
    """The run of a schedule that is due. Raises InvalidInput for a schedule that makes no sense."""
    if due.cron is None:
        raise InvalidInput("schedule", "must be one that a registration has written", due.document[:100])
    check_name("workflow", due.workflow)
    rule = CronRule.parse(due.cron.expression, due.cron.timezone)
    return Occurrence(
        due=due,
        workflow=due.workflow,
        cron=due.cron,
        run_id=run_id_for("cron", due.schedule_id, str(due.occurrence_ms)),
        next_at_ms=rule.next_after(max(due.occurrence_ms, now_ms)),
        skipped=rule.count_until(due.occurrence_ms, now_ms, MAX_SKIPPED),
    )
