"""Cron schedules in force, and what starting a run of one takes. The rule of their times is in `cron.py`."""

from __future__ import annotations

from dataclasses import dataclass

from redflow_server.domain.registry import CronSchedule, PlannedSchedule


@dataclass(frozen=True, slots=True)
class ScheduleProblem:
    """Why a cron schedule of a workflow can have no occurrence."""

    workflow: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedules of a registration, and those that can have no occurrence."""

    schedules: tuple[PlannedSchedule, ...] = ()
    problems: tuple[ScheduleProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule whose occurrence has come, as it stands on record; without `cron` when that cannot be read."""

    schedule_id: str
    occurrence_ms: int
    document: bytes
    workflow: str = ""
    cron: CronSchedule | None = None


@dataclass(frozen=True, slots=True)
class DueSchedules:
    """The schedules that are due by Redis' clock, and when the next one is."""

    now_ms: int
    schedules: tuple[DueSchedule, ...]
    next_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence to start a run of, and the one to plan next; `skipped` passed in between."""

    due: DueSchedule
    workflow: str
    cron: CronSchedule
    run_id: str
    next_at_ms: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule in force, and where it stands."""

    schedule_id: str
    workflow: str
    cron: CronSchedule
    next_at_ms: int | None
    last_at_ms: int | None
    skipped: int
    problem: str
