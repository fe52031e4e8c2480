"""What holds for every cron schedule, whatever the clocks of its zone do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import given, settings
from hypothesis import strategies as st

from redflow_server.domain.cron import CronRule
from tests.unit.cron_schedules import (
    CHANGED,
    CHANGED_BY_MUCH,
    DAILY,
    DISTANCES_MS,
    HOUR_MS,
    SOME_DAYS,
    Columns,
    milliseconds,
    occurrences,
    parsed,
    text_of,
)

bounded = settings(max_examples=150, deadline=None, database=None, derandomize=True)
DAY = timedelta(days=1)


@bounded
@given(DAILY | SOME_DAYS, CHANGED | CHANGED_BY_MUCH, DISTANCES_MS, st.integers(0, 1000))
def test_every_start_before_an_occurrence_leads_to_it_and_occurrences_are_unique(
    fields: Columns, change: tuple[str, str], distance_ms: int, thousandths: int
) -> None:
    timezone, hour = change
    rule = parsed(fields, timezone)
    at_ms = milliseconds(hour) + distance_ms
    for _ in range(5):
        following_ms = rule.next_after(at_ms)
        assert following_ms > at_ms
        assert following_ms % 1000 == 0
        between_ms = at_ms + (following_ms - 1 - at_ms) * thousandths // 1000
        assert rule.next_after(between_ms) == following_ms
        assert rule.next_after(following_ms - 1) == following_ms
        at_ms = following_ms


@bounded
@given(DAILY, CHANGED | CHANGED_BY_MUCH, DISTANCES_MS)
def test_a_daily_schedule_never_waits_for_more_than_two_days(
    fields: Columns, change: tuple[str, str], distance_ms: int
) -> None:
    timezone, hour = change
    rule = parsed(fields, timezone)
    at_ms = milliseconds(hour) + distance_ms
    for _ in range(5):
        following_ms = rule.next_after(at_ms)
        assert following_ms - at_ms <= 48 * HOUR_MS
        at_ms = following_ms


@bounded
@given(DAILY | SOME_DAYS, CHANGED, DISTANCES_MS)
def test_six_fields_with_second_zero_are_the_five(fields: Columns, change: tuple[str, str], distance_ms: int) -> None:
    timezone, hour = change
    five, six = parsed(fields, timezone), CronRule.parse(f"0 {text_of(fields)}", timezone)
    start_ms = milliseconds(hour) + distance_ms
    assert five.next_after(start_ms) == six.next_after(start_ms)


@bounded
@given(DAILY, CHANGED | CHANGED_BY_MUCH, DISTANCES_MS, st.integers(0, 50))
def test_a_count_is_of_the_occurrences(fields: Columns, change: tuple[str, str], distance_ms: int, limit: int) -> None:
    timezone, hour = change
    rule = parsed(fields, timezone)
    start_ms = milliseconds(hour) + distance_ms
    until_ms = start_ms + 3 * HOUR_MS
    assert rule.count_until(start_ms, until_ms, limit) == min(limit, len(occurrences(rule, start_ms, until_ms)))


def changes_of_2026(zone: ZoneInfo) -> Iterator[datetime]:
    """Days by UTC in which the zone's offset changes."""
    days = [datetime(2026, 1, 1, tzinfo=UTC) + number * DAY for number in range(366)]
    offsets = [day.astimezone(zone).utcoffset() for day in days]
    for day, (before, after) in zip(days, pairwise(offsets), strict=False):
        if before != after:
            yield day


def test_a_fixed_time_comes_once_a_day_in_every_zone_that_changes_its_clocks() -> None:
    changes = 0
    for timezone in sorted(available_timezones() - {"localtime"}):
        zone = ZoneInfo(timezone)
        for day in changes_of_2026(zone):
            changes += 1
            # Clocks change at night, if anywhere.
            for hour in (0, 1, 2, 3, 12, 22, 23):
                rule = CronRule.parse(f"30 {hour} * * *", timezone)
                midnight = (day.astimezone(zone) - DAY).replace(tzinfo=None, hour=0, minute=0)
                start, end = midnight.replace(tzinfo=zone), (midnight + 4 * DAY).replace(tzinfo=zone)
                found = occurrences(rule, int(start.timestamp() * 1000), int(end.timestamp() * 1000))
                assert len(found) == 4, (timezone, day, hour)
                assert max(later - earlier for earlier, later in pairwise(found)) <= 26 * HOUR_MS, (timezone, day, hour)
    assert changes > 200
