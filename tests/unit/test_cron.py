"""When a cron schedule comes where clocks change: fixed times once, intervals at their pace."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from redflow_server.domain.cron import CronRule

HOUR_MS = 3_600_000


def milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def between(expression: str, timezone: str, after: str, until: str) -> list[str]:
    """The occurrences in (after, until], by UTC."""
    rule, at_ms, found = CronRule.parse(expression, timezone), milliseconds(after), []
    while (at_ms := rule.next_after(at_ms)) <= milliseconds(until):
        found.append(f"{datetime.fromtimestamp(at_ms / 1000, UTC):%d %H:%M}")
    return found


# expression, zone, (after, until], occurrences as day and time by UTC
SKIPPED_TIME = {
    "a fixed time runs at the end of the gap": (
        "30 2 * * *", "America/New_York", "2026-03-07T12:00Z", "2026-03-09T12:00Z", ["08 07:00", "09 06:30"],
    ),
    "several skipped times of one schedule are one run": (
        "15,45 2 * * *", "America/New_York", "2026-03-08T00:00Z", "2026-03-09T12:00Z",
        ["08 07:00", "09 06:15", "09 06:45"],
    ),
    "a skipped time and one at the gap's end are one run": (
        "0 2-4 * * *", "America/New_York", "2026-03-08T00:00Z", "2026-03-08T12:00Z", ["08 07:00", "08 08:00"],
    ),
    "hours in a range that is not skipped stay where they are": (
        "0 7-8 * * *", "America/Los_Angeles", "2020-03-08T08:00Z", "2020-03-09T08:00Z", ["08 14:00", "08 15:00"],
    ),
    "the skipped one of a range of hours runs at the end of the gap": (
        "30 1-3 * * *", "America/Los_Angeles", "2020-03-08T08:00Z", "2020-03-09T08:00Z",
        ["08 09:30", "08 10:00", "08 10:30"],
    ),
    "seconds make no difference": (
        "30 30 2 * * *", "America/New_York", "2026-03-08T00:00Z", "2026-03-09T00:00Z", ["08 07:00"],
    ),
    "a skipped midnight, Brazil": (
        "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00Z", "2018-11-05T12:00Z", ["04 03:00", "05 02:00"],
    ),
    "a skipped midnight, Lebanon": (
        "@daily", "Asia/Beirut", "2024-03-30T12:00Z", "2024-04-01T12:00Z", ["30 22:00", "31 21:00"],
    ),
    "a skipped first of a month is not lost": (
        "0 0 31 3 *", "Asia/Beirut", "2024-03-01T00:00Z", "2024-12-01T00:00Z", ["30 22:00"],
    ),
    "half an hour skipped": (
        "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", "2026-10-04T20:00Z", ["03 15:30", "04 15:15"],
    ),
    "Ramadan's end": (
        "30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00Z", "2026-03-23T12:00Z", ["22 02:00", "23 01:30"],
    ),
    "a whole day skipped": (
        "0 12 * * *", "Pacific/Apia", "2011-12-29T00:00Z", "2012-01-01T00:00Z", ["29 22:00", "30 10:00", "30 22:00",
                                                                                "31 22:00"],
    ),
    "an interval goes on": (
        "*/30 * * * *", "America/New_York", "2026-03-08T05:45Z", "2026-03-08T08:15Z",
        ["08 06:00", "08 06:30", "08 07:00", "08 07:30", "08 08:00"],
    ),
    "an interval in hours that are skipped does not run that day": (
        "*/30 2 * * *", "America/New_York", "2026-03-07T00:00Z", "2026-03-09T12:00Z",
        ["07 07:00", "07 07:30", "09 06:00", "09 06:30"],
    ),
    "an interval in a midnight hour that is skipped": (
        "*/30 * 4 11 *", "America/Sao_Paulo", "2018-11-03T00:00Z", "2018-11-04T04:15Z",
        ["04 03:00", "04 03:30", "04 04:00"],
    ),
}  # fmt: skip
REPEATED_TIME = {
    "a fixed time runs the first time": (
        "30 1 * * *", "America/New_York", "2026-10-31T12:00Z", "2026-11-02T12:00Z", ["01 05:30", "02 06:30"],
    ),
    "several fixed times run the first time": (
        "15,45 1-2 * * *", "America/New_York", "2026-11-01T00:00Z", "2026-11-02T00:00Z",
        ["01 05:15", "01 05:45", "01 07:15", "01 07:45"],
    ),
    "the whole of a range of minutes runs the first time": (
        "0-59/30 1 * * *", "America/New_York", "2026-11-01T00:00Z", "2026-11-02T00:00Z", ["01 05:00", "01 05:30"],
    ),
    "the time at which clocks go back comes once": (
        "0 2 * * *", "America/New_York", "2026-11-01T00:00Z", "2026-11-02T00:00Z", ["01 07:00"],
    ),
    "midnight comes once, Brazil": (
        "59 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00Z", "2018-02-19T03:00Z", ["18 01:59", "19 02:59"],
    ),
    "half an hour repeated": (
        "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00Z", "2026-04-05T20:00Z", ["04 14:45", "05 15:15"],
    ),
    "Ramadan's begin": (
        "30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00Z", "2026-02-16T12:00Z", ["15 01:30", "16 02:30"],
    ),
    "an interval keeps its pace": (
        "*/15 * * * *", "America/New_York", "2026-11-01T04:59Z", "2026-11-01T06:59Z",
        ["01 05:00", "01 05:15", "01 05:30", "01 05:45", "01 06:00", "01 06:15", "01 06:30", "01 06:45"],
    ),
    "every hour is an interval": (
        "@hourly", "America/New_York", "2026-11-01T04:30Z", "2026-11-01T07:30Z", ["01 05:00", "01 06:00", "01 07:00"],
    ),
    "an interval in the repeated hour runs twice": (
        "*/30 1 * * *", "America/New_York", "2026-11-01T00:00Z", "2026-11-02T00:00Z",
        ["01 05:00", "01 05:30", "01 06:00", "01 06:30"],
    ),
    "an interval of seconds in a repeated minute runs twice": (
        "*/30 30 1 * * *", "America/New_York", "2026-11-01T00:00Z", "2026-11-02T00:00Z",
        ["01 05:30", "01 05:30", "01 06:30", "01 06:30"],
    ),
    "an interval in half an hour that is repeated": (
        "*/15 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00Z", "2026-04-05T00:00Z",
        ["04 14:00", "04 14:15", "04 14:30", "04 14:45", "04 15:00", "04 15:15"],
    ),
}  # fmt: skip
NO_CHANGE = {
    "Japan": ("30 2 * * *", "Asia/Tokyo", "2026-03-07T00:00Z", "2026-03-09T00:00Z", ["07 17:30", "08 17:30"]),
    "quarters of an hour": ("0 0 * * *", "Asia/Kathmandu", "2026-03-07T00:00Z", "2026-03-08T00:00Z", ["07 18:15"]),
    "Ramadan itself": ("30 9 * * *", "Africa/Casablanca", "2026-03-01T00:00Z", "2026-03-02T00:00Z", ["01 09:30"]),
}
CASES = SKIPPED_TIME | REPEATED_TIME | NO_CHANGE


@pytest.mark.parametrize(("expression", "timezone", "after", "until", "occurrences"), CASES.values(), ids=CASES)
def test_a_schedule_comes_as_debians_cron_would_start_it(
    expression: str, timezone: str, after: str, until: str, occurrences: list[str]
) -> None:
    assert between(expression, timezone, after, until) == occurrences


def test_an_interval_that_skipped_time_would_leave_without_any_time_runs_at_the_end_of_it() -> None:
    always_skipped = between("*/20 2 * 3 SUN#2", "America/New_York", "2026-01-01T00:00Z", "2029-01-01T00:00Z")
    assert always_skipped == ["08 07:00", "14 07:00", "12 07:00"]
    skipped_this_year = between("*/20 2 8 3 *", "America/New_York", "2026-01-01T00:00Z", "2028-01-01T00:00Z")
    assert skipped_this_year == ["08 07:00", "08 07:20", "08 07:40"]


def test_an_interval_that_is_years_off_does_not_run_because_clocks_change() -> None:
    leap_day = between("0 * 29 2 *", "America/New_York", "2026-03-08T05:00Z", "2028-02-29T06:00Z")
    assert leap_day == ["29 05:00", "29 06:00"]


def test_an_occurrence_is_later_than_the_instant_asked_about() -> None:
    rule, at_ms = CronRule.parse("0 9 * * *", "Europe/Berlin"), milliseconds("2026-06-01T07:00Z")
    assert rule.next_after(at_ms - 1) == at_ms
    assert rule.next_after(at_ms) == rule.next_after(at_ms + 1) == at_ms + 24 * HOUR_MS


def test_a_fixed_time_is_over_when_asked_about_in_repeated_time() -> None:
    rule = CronRule.parse("30 1 * * *", "America/New_York")
    again_ms = milliseconds("2026-11-01T06:30Z")
    assert rule.next_after(again_ms - 1) == again_ms + 24 * HOUR_MS


def test_the_end_of_repeated_time_is_still_to_come_when_asked_about_within_it() -> None:
    rule, end_ms = CronRule.parse("0 2 * * *", "America/New_York"), milliseconds("2026-11-01T07:00Z")
    assert rule.next_after(end_ms - HOUR_MS // 2) == end_ms


def test_every_second_of_a_night_in_which_clocks_change_is_one_occurrence() -> None:
    for change in ("2026-03-08T07:00Z", "2026-11-01T06:00Z"):
        rule, start_ms = CronRule.parse("* * * * * *", "America/New_York"), milliseconds(change) - 1_000_000
        at_ms = start_ms
        for _ in range(2000):
            following_ms = rule.next_after(at_ms)
            assert following_ms == at_ms + 1000
            at_ms = following_ms


def test_occurrences_are_counted_in_a_span_that_is_open_at_its_start_and_up_to_a_limit() -> None:
    rule, at_ms = CronRule.parse("* * * * *", "Europe/Berlin"), milliseconds("2026-06-01T07:00Z")
    assert rule.count_until(at_ms, at_ms + 59_999, 10) == 0
    assert rule.count_until(at_ms, at_ms + 60_000, 10) == 1
    assert rule.count_until(at_ms - 1, at_ms + 60_000, 10) == 2
    assert rule.count_until(at_ms, at_ms + 1000 * HOUR_MS, 10) == 10
    assert rule.count_until(at_ms, at_ms + 1000 * HOUR_MS, 0) == 0
    assert rule.count_until(at_ms, at_ms - HOUR_MS, 10) == 0


def test_threads_that_share_a_rule_get_the_answers_of_one() -> None:
    rule, start_ms = CronRule.parse("*/7 1,13 * * 1-5", "Europe/Berlin"), milliseconds("2026-03-01T00:00Z")
    asked_ms = [start_ms + days * 24 * HOUR_MS for days in range(200)]
    alone = [rule.next_after(at_ms) for at_ms in asked_ms]
    together = threading.Barrier(4)

    def ask(_thread: int) -> list[int]:
        together.wait(timeout=30)
        return [rule.next_after(at_ms) for at_ms in asked_ms]

    with ThreadPoolExecutor(4) as threads:
        assert all(answers == alone for answers in threads.map(ask, range(4)))
