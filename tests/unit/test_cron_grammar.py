"""Which cron expressions and zones are taken, and what their fields mean where no clock changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redflow_server.domain.cron import MAX_EXPRESSION_CHARS, CronRule
from redflow_server.domain.errors import InvalidInput

MONDAY = "2026-06-01T00:00:00Z"


def milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def times(expression: str, after: str = MONDAY, count: int = 100) -> list[str]:
    rule, at_ms, found = CronRule.parse(expression, ""), milliseconds(after), []
    for _ in range(count):
        at_ms = rule.next_after(at_ms)
        found.append(f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}")
    return found


SAME = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "@daily"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "@yearly"),
    (" @Daily ", "@daily"),
    ("  5\t4  * * *  ", "5 4 * * *"),
    ("05 04 * * *", "5 4 * * *"),
    ("0 0 0 * * 7", "0 0 0 * * 0"),
    ("0 0 * * 7", "0 0 * * SUN"),
    ("0 0 * * 0", "0 0 * * sun"),
    ("0 0 * * 1-5", "0 0 * * MON-FRI"),
    ("0 0 * * 5-7", "0 0 * * 0,5,6"),
    ("0 0 * * FRI-MON", "0 0 * * 0,1,5,6"),
    ("0 0 * * FRI-SUN", "0 0 * * 5-7"),
    ("0 0 * * 1-7/2", "0 0 * * 1,3,5,0"),
    ("0 0 * * 1/2", "0 0 * * 1-7/2"),
    ("0 0 * * 0-7", "0 0 * * *"),
    ("0 0 1 JAN,jul *", "0 0 1 1,7 *"),
    ("0 0 1 NOV-FEB *", "0 0 1 1,2,11,12 *"),
    ("*/20 * * * *", "0,20,40 * * * *"),
    ("10-30/10 * * * *", "10,20,30 * * * *"),
    ("50/5 * * * *", "50,55 * * * *"),
    ("59/15 * * * *", "59 * * * *"),
    ("9-9 9-9 * * 3-3", "9 9 * * 3"),
    ("*/60 */24 * */12 *", "0 0 * 1 *"),
    ("*/30,5 * * * *", "0,5,30 * * * *"),
    ("0-59 0-23 1-31 1-12 *", "* * * * *"),
    ("0 5 4 * * *", "5 4 * * *"),
]


@pytest.mark.parametrize(("spelling", "plain"), SAME)
def test_spellings_of_one_schedule_come_at_the_same_times(spelling: str, plain: str) -> None:
    assert times(spelling) == times(plain)


COMES = {
    "15 9 * * *": ["2026-06-01T09:15:00Z", "2026-06-02T09:15:00Z", "2026-06-03T09:15:00Z"],
    "30 15 9 * * *": ["2026-06-01T09:15:30Z", "2026-06-02T09:15:30Z", "2026-06-03T09:15:30Z"],
    "* * * * * *": ["2026-06-01T00:00:01Z", "2026-06-01T00:00:02Z", "2026-06-01T00:00:03Z"],
    "*/20 * * * * *": ["2026-06-01T00:00:20Z", "2026-06-01T00:00:40Z", "2026-06-01T00:01:00Z"],
    "0 0 * * MON": ["2026-06-08T00:00:00Z", "2026-06-15T00:00:00Z", "2026-06-22T00:00:00Z"],
    "0 0 31 * *": ["2026-07-31T00:00:00Z", "2026-08-31T00:00:00Z", "2026-10-31T00:00:00Z"],
    "0 0 31 4,5 *": ["2027-05-31T00:00:00Z", "2028-05-31T00:00:00Z", "2029-05-31T00:00:00Z"],
    "0 0 29 2 *": ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z", "2036-02-29T00:00:00Z"],
    "0 0 L * *": ["2026-06-30T00:00:00Z", "2026-07-31T00:00:00Z", "2026-08-31T00:00:00Z"],
    "0 0 L,15 2 *": ["2027-02-15T00:00:00Z", "2027-02-28T00:00:00Z", "2028-02-15T00:00:00Z"],
    "0 0 * * L5": ["2026-06-26T00:00:00Z", "2026-07-31T00:00:00Z", "2026-08-28T00:00:00Z"],
    "0 0 * * L7": ["2026-06-28T00:00:00Z", "2026-07-26T00:00:00Z", "2026-08-30T00:00:00Z"],
    "0 0 * * MON#2": ["2026-06-08T00:00:00Z", "2026-07-13T00:00:00Z", "2026-08-10T00:00:00Z"],
    "0 0 * * 7#1,3#5": ["2026-06-07T00:00:00Z", "2026-07-05T00:00:00Z", "2026-07-29T00:00:00Z"],
    "0 0 * 2 MON#5": ["2044-02-29T00:00:00Z", "2072-02-29T00:00:00Z", "2112-02-29T00:00:00Z"],
}


@pytest.mark.parametrize("expression", COMES)
def test_a_schedule_comes_when_its_fields_say(expression: str) -> None:
    assert times(expression, count=3) == COMES[expression]


def test_either_day_field_makes_the_day_when_both_are_restricted() -> None:
    assert times("0 13 8 1,4,7,10 wed", "2020-09-24T00:00:00Z", 3) == [
        "2020-10-07T13:00:00Z",
        "2020-10-08T13:00:00Z",
        "2020-10-14T13:00:00Z",
    ]
    assert times("0 0 L * FRI", "2026-06-20T00:00:00Z", 2) == ["2026-06-26T00:00:00Z", "2026-06-30T00:00:00Z"]


def test_both_day_fields_have_to_match_when_one_starts_with_a_star() -> None:
    odd_mondays = ["2026-06-15T00:00:00Z", "2026-06-29T00:00:00Z", "2026-07-13T00:00:00Z"]
    assert times("0 0 */2 * MON", count=3) == odd_mondays
    assert times("0 0 1-31/2 * MON", count=3) == [
        "2026-06-03T00:00:00Z",
        "2026-06-05T00:00:00Z",
        "2026-06-07T00:00:00Z",
    ]
    first_or_second_on_even_weekday = ["2026-06-02T00:00:00Z", "2026-07-02T00:00:00Z", "2026-08-01T00:00:00Z"]
    assert times("0 0 1,2 * */2", count=3) == first_or_second_on_even_weekday


def test_the_next_leap_day_after_2096_is_in_2104() -> None:
    assert times("0 0 29 2 *", "2096-03-01T00:00:00Z", 1) == ["2104-02-29T00:00:00Z"]


def test_the_longest_wait_between_two_times_is_forty_years_and_is_found() -> None:
    assert times("0 0 * 2 MON#5", "2072-03-01T00:00:00Z", 1) == ["2112-02-29T00:00:00Z"]


REFUSED = {
    "": "must have five fields",
    "* * * *": "must have five fields",
    "0 0 1 1 * * 2026": "must have five fields",
    "@reboot": "must be fields or one of @hourly",
    "@every 5m": "must be fields or one of @hourly",
    "@": "must be fields or one of @hourly",
    "60 * * * *": "minute must be made of ",
    "60 0 * * * *": "second must be made of ",
    "* 24 * * *": "hour must be made of ",
    "0 0 0 * *": "day-of-month must be made of ",
    "0 0 0 1 0": "day-of-month must be made of ",
    "0 0 0 0 * *": "day-of-month must be made of ",
    "0 0 32 * *": "day-of-month must be made of ",
    "0 0 * 0 *": "month must be made of ",
    "0 0 * 13 *": "month must be made of ",
    "0 0 * JANUARY *": "month must be made of ",
    "0 0 * MON *": "month must be made of ",
    "0 0 * * 8": "day-of-week must be made of ",
    "0 0 * * MON_FRI": "day-of-week must be made of ",
    "0 0 * * JAN": "day-of-week must be made of ",
    "-1 * * * *": "minute must be made of ",
    "1.5 * * * *": "minute must be made of ",
    "1, * * * *": "minute must be made of ",
    "*,5 * * * *": "minute must be made of ",
    "*5 * * * *": "minute must be made of ",
    "*-5 * * * *": "minute must be made of ",
    "5-* * * * *": "minute must be made of ",
    "1-2-3 * * * *": "minute must be made of ",
    "1/2/3 * * * *": "minute must be made of ",
    "*/0 * * * *": "minute must be made of ",
    "*/ * * * *": "minute must be made of ",
    "*/90 * * * *": "minute must be made of ",
    "0 */25 * * *": "hour must be made of ",
    "0 9-5 * * *": "hour must be made of ",
    "0 0 20-10 * *": "day-of-month must be made of ",
    "0 0 * NOV-FEB/2 *": "month must be made of ",
    "H * * * *": "minute must be made of ",
    "H/15 * * * *": "minute must be made of ",
    "R(0-9) * * * *": "minute must be made of ",
    "? * * * *": "minute must be made of ",
    "0 0 ? * *": "day-of-month must be made of ",
    "0 0 15W * *": "day-of-month must be made of ",
    "0 0 L-3 * *": "day-of-month must be made of ",
    "0 L * * *": "hour must be made of ",
    "0 0 * * L": "day-of-week must be made of ",
    "0 0 * * 5L": "day-of-week must be made of ",
    "0 0 * * MON#0": "day-of-week must be made of ",
    "0 0 * * MON#6": "day-of-week must be made of ",
    "0 0 * * FOO#1": "day-of-week must be made of ",
    "0 0 * * MON#2,FRI": "day-of-week with # or L must have no other days beside it",
    "0 0 1 * MON#2": "day-of-week with # or L must have no other days beside it",
    "0 0 */14 * MON#2": "day-of-week with # or L must have no other days beside it",
    "0 0 * * FRı": "must be at most 512 printable ASCII characters",  # noqa: RUF001  # its capitals would be FRI
    "\u0663 * * * *": "must be at most 512 printable ASCII characters",
    "0\x1c0 * * *": "must be at most 512 printable ASCII characters",
    "0\n0 * * *": "must be at most 512 printable ASCII characters",
    "0," * MAX_EXPRESSION_CHARS + "0 * * * *": "must be at most 512 printable ASCII characters",
}


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_no_expression_is_refused_and_the_refusal_says_where(expression: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        CronRule.parse(expression, "")
    assert refusal.value.details["field"] == "cron.expression"
    assert refusal.value.details["rule"].startswith(REFUSED[expression])


NEVER = (
    "0 0 30 2 *",
    "0 0 31 2 *",
    "0 0 31 4 *",
    "0 0 31 2,4,6 *",
    "0 0 30-31 2 *",
    "0 0 31 4,6,9,11 *",
    "0 0 31 4 MON",
)


@pytest.mark.parametrize("expression", NEVER)
def test_days_that_never_come_are_refused_at_once(expression: str) -> None:
    def refuse() -> None:
        with pytest.raises(InvalidInput, match="day-of-month never comes in its month"):
            CronRule.parse(expression, "")

    assert quickest_s(refuse) < 0.05


RARE = (
    "0 0 29 2 *",
    "0 0 * 2 MON#5",
    "* 2 * 3 SUN#2",
    "0 0 29 2 SUN",
    "0-59 0-59 0-23 1-30 1-11 0-5",
    "59 59 23 31 12 *",
)


@pytest.mark.parametrize("expression", RARE)
def test_the_next_time_is_found_at_once_however_far_it_is(expression: str) -> None:
    rule, at_ms = CronRule.parse(expression, "America/New_York"), milliseconds("2096-03-08T12:00Z")
    assert quickest_s(lambda: rule.next_after(at_ms)) < 0.05


def quickest_s(call: Callable[[], object]) -> float:
    """Processor time of the best of some tries, so that pauses of the machine do not count."""
    tries = []
    for _ in range(5):
        started = time.process_time()
        call()
        tries.append(time.process_time() - started)
    return min(tries)


ZONES_REFUSED = (
    "Mars/Olympus", "europe/berlin", "Europe/Berlin ", "Europe", "Europe/", "../../etc/passwd", "/etc/localtime",
    "localtime", "posixrules", "posix/UTC", "right/UTC", "Europe/../UTC", "CET-1CEST", "\0", "U" * 100_000, "\ud800",
)  # fmt: skip


@pytest.mark.parametrize("timezone", ZONES_REFUSED, ids=lambda timezone: ascii(timezone[:20]))
def test_a_zone_that_is_not_in_the_iana_database_is_refused(timezone: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        CronRule.parse("@daily", timezone)
    assert refusal.value.details["field"] == "cron.timezone"


def test_no_zone_is_utc() -> None:
    assert CronRule.parse("@daily", "") == CronRule.parse("@daily", "UTC")
    assert CronRule.parse("@daily", "") != CronRule.parse("@daily", "Europe/Berlin")


LONGEST_WAIT_MS = 41 * 366 * 86_400_000
FIELD_LIKE = st.text("0123456789*/,-#LMONJAFRISUW? @H", min_size=1, max_size=6)
STRINGS = st.one_of(
    st.text(max_size=30),
    st.lists(FIELD_LIKE, min_size=4, max_size=7).map(" ".join),
    st.lists(st.sampled_from(["*", "*/7", "0", "1", "2", "29", "30", "31", "L", "MON#5", "L1", "FEB", "*/30", "5-7"]),
             min_size=5, max_size=6).map(" ".join),
)  # fmt: skip


@settings(max_examples=500, deadline=None, database=None, derandomize=True)
@given(expression=STRINGS, at_ms=st.integers(0, milliseconds("2200-01-01T00:00:00Z")))
def test_any_string_is_refused_or_comes_again_and_again(expression: str, at_ms: int) -> None:
    try:
        rule = CronRule.parse(expression, "America/New_York")
    except InvalidInput:
        return
    first_ms = rule.next_after(at_ms)
    second_ms = rule.next_after(first_ms)
    assert at_ms < first_ms < second_ms < at_ms + 2 * LONGEST_WAIT_MS
