"""The cron rule against two others: cronsim, which mimics Debian's cron, and Debian's own loop, minute by minute."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import assume, given, settings

from tests.unit.cron_schedules import (
    CHANGED,
    CHANGED_BY_MUCH,
    DAILY,
    DISTANCES_MS,
    HOUR_MS,
    MINUTE_MS,
    SOME_DAYS,
    Columns,
    is_fixed,
    milliseconds,
    occurrences,
    parsed,
    text_of,
)

# The same examples each time: what the oracles do not know is no reason for a build to fail now and then.
bounded = settings(max_examples=200, deadline=None, database=None, derandomize=True)


def matches(fields: Columns, wall: datetime) -> bool:
    minutes, hours, days, months, weekdays = fields
    if wall.minute not in minutes.values or wall.hour not in hours.values or wall.month not in months.values:
        return False
    day, weekday = wall.day in days.values, wall.isoweekday() % 7 in weekdays.values
    if days.text.startswith("*") or weekdays.text.startswith("*"):
        return day and weekday
    return day or weekday


def wall_minute(zone: ZoneInfo, at_ms: int) -> int:
    """What a clock shows, in minutes since 1970 read as if by UTC."""
    wall = datetime.fromtimestamp(at_ms // 1000, zone).replace(tzinfo=UTC)
    return int(wall.timestamp()) // 60


def debians_loop(fields: Columns, zone: ZoneInfo, start_ms: int, until_ms: int) -> Iterator[int]:
    """Wakes each minute. Intervals run when they match the clock; fixed times once the clock has got to them.

    `virtual` is the latest minute that the clock has shown so far: it waits while time repeats itself.
    """
    first_ms = (start_ms // MINUTE_MS - 4 * 60) * MINUTE_MS
    virtual = wall_minute(zone, first_ms)
    for at_ms in range(first_ms + MINUTE_MS, until_ms + 1, MINUTE_MS):
        shown = wall_minute(zone, at_ms)
        new = range(virtual + 1, shown + 1) if is_fixed(fields) else (shown,)
        virtual = max(virtual, shown)
        if at_ms > start_ms and any(matches(fields, datetime.fromtimestamp(wall * 60, UTC)) for wall in new):
            yield at_ms


@bounded
@given(fields=DAILY | SOME_DAYS, change=CHANGED | CHANGED_BY_MUCH, distance_ms=DISTANCES_MS)
def test_it_comes_when_debians_loop_would_start_it(fields: Columns, change: tuple[str, str], distance_ms: int) -> None:
    timezone, hour = change
    start_ms = milliseconds(hour) + distance_ms
    until_ms = start_ms + 12 * HOUR_MS
    rule = parsed(fields, timezone)
    assert occurrences(rule, start_ms, until_ms) == list(debians_loop(fields, ZoneInfo(timezone), start_ms, until_ms))


# Where cronsim is known to say otherwise, by reason.
KNOWN_DIFFERENCES: dict[str, Callable[[Columns, str], bool]] = {
    "it goes from hour to hour by UTC, so it passes by times after a change by part of an hour": lambda fields, zone: (
        not is_fixed(fields) and zone in ("Australia/Lord_Howe", "Asia/Pyongyang")
    ),
    "it enters a day at its midnight, and counts hours from there, where that is skipped": lambda fields, zone: (
        not is_fixed(fields)
        and fields[1].text != "*"
        and zone in ("America/Sao_Paulo", "Asia/Beirut", "America/Havana")
    ),
    "it reads a-a/step as a/step, which runs to the end of the field": lambda fields, _zone: any(
        re.match(r"(\d+)-\1/", column.text) for column in fields
    ),
}


def cronsims(expression: str, zone: ZoneInfo, start_ms: int, count: int) -> list[int]:
    found: list[int] = []
    for moment in CronSim(expression, datetime.fromtimestamp(start_ms / 1000, zone)):
        at_ms = int(moment.timestamp()) * 1000
        # Asked about a fixed time in repeated time, it does not know that it is the second time.
        if at_ms > start_ms:
            found.append(at_ms)
        if len(found) == count:
            break
    return found


@bounded
@given(fields=DAILY | SOME_DAYS, change=CHANGED, distance_ms=DISTANCES_MS)
def test_it_comes_when_cronsim_says(fields: Columns, change: tuple[str, str], distance_ms: int) -> None:
    timezone, hour = change
    start_ms = milliseconds(hour) + distance_ms
    assume(not any(differs(fields, timezone) for differs in KNOWN_DIFFERENCES.values()))
    rule = parsed(fields, timezone)
    expected = cronsims(text_of(fields), ZoneInfo(timezone), start_ms, 6)
    at_ms, found = start_ms, []
    for _ in expected:
        at_ms = rule.next_after(at_ms)
        found.append(at_ms)
    assert found == expected
