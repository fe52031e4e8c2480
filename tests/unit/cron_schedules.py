"""Schedules to try the cron rule with: fields as text and by hand, zones and hours in which clocks change."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from hypothesis import assume
from hypothesis import strategies as st

from redflow_server.domain.cron import CronRule

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
# Zones and hours by UTC shortly before their clocks change, or where they do not.
CHANGES = (
    ("America/New_York", "2026-03-08T06"),
    ("America/New_York", "2026-11-01T05"),
    ("America/New_York", "2045-03-12T06"),  # after the tables: by the rule at their end
    ("Europe/Berlin", "2026-03-29T00"),
    ("Europe/Berlin", "2026-10-25T00"),
    ("Europe/Dublin", "2026-10-25T00"),  # winter time is the one that is saved
    ("America/Sao_Paulo", "2018-11-04T02"),  # midnight is skipped
    ("America/Sao_Paulo", "2018-02-18T01"),
    ("Asia/Beirut", "2024-03-30T21"),
    ("Asia/Beirut", "2024-10-26T20"),
    ("America/Havana", "2026-03-08T04"),
    ("America/St_Johns", "2026-03-08T05"),  # half an hour off
    ("Africa/Casablanca", "2026-02-15T01"),  # Ramadan
    ("Africa/Casablanca", "2026-03-22T01"),
    ("Australia/Lord_Howe", "2026-04-04T14"),  # changes by half an hour
    ("Australia/Lord_Howe", "2026-10-03T15"),
    ("Antarctica/Troll", "2026-03-29T00"),  # changes by two hours
    ("Antarctica/Troll", "2026-10-25T00"),
    ("Asia/Kathmandu", "2026-03-08T00"),
    ("Asia/Pyongyang", "2018-05-04T14"),  # moved by half an hour, just before midnight
    ("UTC", "2028-02-28T23"),
)
LONG_CHANGES = (
    ("Antarctica/Casey", "2016-10-21T15"),  # three hours
    ("Antarctica/Casey", "2018-03-10T14"),
    ("Pacific/Apia", "2011-12-30T09"),  # a day
)


def milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Column:
    """A field as text, and the values that it has by hand."""

    text: str
    values: frozenset[int] = field(repr=False)


def columns(low: int, high: int, usual_high: int) -> st.SearchStrategy[Column]:
    """Fields with values from low to high; numbers that are named are up to `usual_high`, where clocks change."""
    numbers = st.integers(low, usual_high)
    steps = st.integers(2, 1 + (high - low) // 2)
    ranges = st.tuples(numbers, numbers).map(sorted)
    every = st.just(Column("*", frozenset(range(low, high + 1))))
    lists = st.lists(numbers, min_size=1, max_size=3).map(
        lambda some: Column(",".join(map(str, some)), frozenset(some)),
    )
    stepped = steps.map(lambda step: Column(f"*/{step}", frozenset(range(low, high + 1, step))))
    ranged = ranges.map(lambda ends: Column(f"{ends[0]}-{ends[1]}", frozenset(range(ends[0], ends[1] + 1))))
    in_steps = st.builds(
        lambda ends, step: Column(f"{ends[0]}-{ends[1]}/{step}", frozenset(range(ends[0], ends[1] + 1, step))),
        ranges,
        steps,
    )
    return st.one_of(lists, ranged, every, stepped, in_steps)


TIMES_OF_DAY = (columns(0, 59, 59), columns(0, 23, 4) | columns(0, 23, 23))
DAYS = (Column("*", frozenset(range(1, 32))), Column("*", frozenset(range(1, 13))), Column("*", frozenset(range(7))))
DAILY = st.tuples(*TIMES_OF_DAY, *map(st.just, DAYS))
SOME_DAYS = st.tuples(*TIMES_OF_DAY, columns(1, 31, 31), columns(1, 12, 12), columns(0, 6, 6))
CHANGED = st.sampled_from(CHANGES)
CHANGED_BY_MUCH = st.sampled_from(LONG_CHANGES)
DISTANCES_MS = st.one_of(st.integers(-4 * HOUR_MS, 6 * HOUR_MS), st.integers(-40 * HOUR_MS, 40 * HOUR_MS))
"""Mostly around the change, where rules differ."""
Columns = tuple[Column, Column, Column, Column, Column]


def text_of(fields: Columns) -> str:
    return " ".join(column.text for column in fields)


def is_fixed(fields: Columns) -> bool:
    return not (fields[0].text.startswith("*") or fields[1].text.startswith("*"))


def parsed(fields: Columns, timezone: str) -> CronRule:
    """Of fields that have a day at all."""
    longest = max(29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in fields[3].values)
    assume(min(fields[2].values) <= longest)
    return CronRule.parse(text_of(fields), timezone)


def occurrences(rule: CronRule, after_ms: int, until_ms: int) -> list[int]:
    """In (after_ms, until_ms]."""
    found = []
    while (after_ms := rule.next_after(after_ms)) <= until_ms:
        found.append(after_ms)
    return found
