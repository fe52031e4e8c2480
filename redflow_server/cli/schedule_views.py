"""Cron schedules and their occurrences as tables for people and as JSON. The names of JSON fields are a promise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from redflow_sdk import CronTrigger, Schedule
from redflow_server.cli.escaping import shortened
from redflow_server.cli.output import card, table

PROBLEM_COLUMNS: Final = 60


def cron_document(cron: CronTrigger) -> dict[str, object]:
    """A schedule as its definition has it."""
    return {"id": cron.id, "expression": cron.expression, "timezone": cron.timezone, "input": cron.input}


def cron_words(cron: CronTrigger) -> str:
    """The same on a line, without its input."""
    return f"{cron.expression} {cron.timezone or 'UTC'}" + (f" ({cron.id})" if cron.id else "")


def schedule_document(schedule: Schedule) -> dict[str, object]:
    """A schedule in force."""
    return {
        "id": schedule.id,
        "workflow": schedule.workflow,
        "cron": cron_document(schedule.cron),
        "next_at": schedule.next_at,
        "last_at": schedule.last_at,
        "skipped": schedule.skipped,
        "problem": schedule.problem,
    }


def schedules_table(schedules: Iterable[Schedule]) -> str:
    """Schedules, a line for each; a column for problems if there are any."""
    header = ("id", "workflow", "expression", "timezone", "next", "last", "skipped", "problem")
    rows = [_row(schedule) for schedule in schedules]
    width = len(header) if any(row[-1] for row in rows) else len(header) - 1
    return table(header[:width], [row[:width] for row in rows])


def _row(schedule: Schedule) -> tuple[object, ...]:
    cron, problem = schedule.cron, shortened(schedule.problem, PROBLEM_COLUMNS)
    what = schedule.id, schedule.workflow, cron.expression, cron.timezone or "UTC"
    return *what, schedule.next_at, schedule.last_at, schedule.skipped, problem


def schedule_card(schedule: Schedule) -> str:
    """A schedule in force, without what it does not have."""
    cron = schedule.cron
    fields: dict[str, object] = {
        "id": schedule.id,
        "workflow": schedule.workflow,
        "called": cron.id,
        "expression": cron.expression,
        "timezone": cron.timezone or "UTC",
        "input": json.dumps(cron.input, ensure_ascii=False),
        "next_at": schedule.next_at,
        "last_at": schedule.last_at,
        "skipped": schedule.skipped,
        "problem": schedule.problem,
    }
    return card({name: value for name, value in fields.items() if value not in (None, "")})


def occurrences_document(expression: str, timezone: str, occurrences: Sequence[datetime]) -> dict[str, object]:
    """When an expression comes, in UTC and by the clocks of its zone."""
    local = [at.astimezone(ZoneInfo(timezone)).isoformat() for at in occurrences]
    return {
        "expression": expression,
        "timezone": timezone,
        "next": [{"at": at, "local": shown} for at, shown in zip(occurrences, local, strict=True)],
    }


def occurrences_table(timezone: str, occurrences: Iterable[datetime]) -> str:
    """The same for people."""
    local = [(at, at.astimezone(ZoneInfo(timezone))) for at in occurrences]
    return table(("at", "local"), [(at, f"{there:%a} {there.isoformat(sep=' ')}") for at, there in local])
