"""When a cron schedule comes: the times of an expression in a zone, as instants.

Fields are minute, hour, day-of-month, month, day-of-week, or six with the second first, or an alias such as @daily.
A field is a list of `*`, `n`, `a-b`, each with a `/step` where one makes sense; months and days have names, 7 is
Sunday, and a range of months or days may run over its end (FRI-MON). `L` is a month's last day, `L5` its last Friday,
`MON#2` its second Monday. When neither day field starts with `*`, either makes the day; else both have to.

Changes of a zone's offset (daylight saving, but also a zone that moves) follow Debian's cron, which tells two kinds
of schedule apart by their text:

- **fixed time**: no field of the time of day starts with `*` (`30 1 * * *`, `0 7-8 * * *`, `0-59/5 2 * * *`). What
  falls into skipped time comes at the first instant after it, once, however many of its times were skipped. What falls
  into repeated time comes the first time only.
- **interval**: any other (`*/15 * * * *`, `0 * * * *`, `*/15 2 * * *`). It comes whenever the clock on the wall shows a
  time of it: twice in repeated time, not in skipped time. A schedule that skipped time leaves without any time for a
  year (`* 2 * 3 SUN#2` in New York) comes at the first instant after it, so that no schedule never comes.

Unlike Debian's cron, which takes a change of three hours and more for a correction of the clock, the rules hold for
changes of any size: an offset in the zone data is never a correction. Each occurrence is one instant.
"""

from __future__ import annotations

import copy
import functools
import importlib.resources
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from croniter import croniter

from redflow_server.domain.errors import InvalidInput

MAX_EXPRESSION_CHARS: Final = 512
"""Lists of every minute and second fit."""
_EXPRESSION: Final = "cron.expression"
_ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LONGEST_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_TERM: Final = re.compile(
    r"(?:\*|(?P<low>[0-9]{1,2}|[A-Z]{3})(?:-(?P<high>[0-9]{1,2}|[A-Z]{3}))?)(?:/(?P<step>[0-9]{1,2}))?"
)
_DAY_OF_MONTHS_WEEK: Final = re.compile(r"L[0-7]|(?:[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[1-5]")

_REACH_S: Final = 26 * 3600
"""More than two offsets of a zone ever differ (Apia's by 25 hours), and less than lies between two of its changes."""
_YEAR_S: Final = 366 * 86400


@dataclass(frozen=True, slots=True)
class CronRule:
    """An expression in a zone that is known to come again and again. `parse` makes it; threads may share it."""

    expression: str
    timezone: str
    _walls: _WallTimes = field(repr=False, compare=False)
    _zone: ZoneInfo = field(repr=False, compare=False)
    _next_s: Callable[[_WallTimes, ZoneInfo, int], int] = field(repr=False, compare=False)

    @classmethod
    def parse(cls, expression: str, timezone: str) -> CronRule:
        """Raises InvalidInput for an expression that is not one or never comes, or an unknown zone; "" is UTC."""
        return _parsed(expression, timezone or "UTC")

    def next_after(self, at_ms: int) -> int:
        """The first occurrence later than `at_ms`; both are epoch milliseconds, up to the year 9900.

        Takes a fraction of a millisecond, a few for schedules that come once in years.
        """
        return self._next_s(self._walls, self._zone, at_ms // 1000) * 1000

    def count_until(self, after_ms: int, until_ms: int, limit: int) -> int:
        """How many occurrences are later than `after_ms` and not later than `until_ms`, at most `limit`."""
        count = 0
        while count < limit and (after_ms := self.next_after(after_ms)) <= until_ms:
            count += 1
        return count


@dataclass(frozen=True, slots=True)
class _WallTimes:
    """The times that match, as clocks on the wall show them: seconds since 1970 read as if there were no zones."""

    pattern: croniter

    def after(self, wall_s: int) -> int:
        """The first match later than `wall_s`."""
        # The search writes into the pattern that it starts from.
        return int(copy.copy(self.pattern).get_next(float, start_time=float(wall_s)))


@functools.lru_cache(maxsize=1024)
def _parsed(expression: str, timezone: str) -> CronRule:
    if timezone not in _zone_names():
        raise InvalidInput("cron.timezone", "must be a zone of the IANA database, such as Europe/Berlin", timezone)
    parts = _split(expression)
    columns = [_matched(column, part) for column, part in zip(_FIELDS[-len(parts) :], parts, strict=True)]
    _check_days(parts, columns)
    either_day = not (parts[-3].startswith("*") or parts[-1].startswith("*"))
    pattern = croniter(
        " ".join(",".join(column) for column in columns), 0.0, day_or=either_day, second_at_beginning=True
    )
    is_interval = any(part.startswith("*") for part in parts[:-3])
    next_s = _next_of_interval_s if is_interval else _next_of_fixed_time_s
    return CronRule(expression, timezone, _WallTimes(pattern), ZoneInfo(timezone), next_s)


@functools.cache
def _zone_names() -> frozenset[str]:
    """All names of the IANA database: neither a machine's own zone nor paths are among them."""
    return frozenset(importlib.resources.files("tzdata").joinpath("zones").read_text("ascii").split())


# The grammar. croniter gets lists of numbers: it reads `9-9` as every hour, `H` as a hash, and seven fields as years.


@dataclass(frozen=True, slots=True)
class _Field:
    """What a field of an expression may hold; `size` values count from `low`, and a weekday may also be `high`."""

    name: str
    low: int
    high: int
    size: int
    names: Mapping[str, int] = field(default_factory=dict)

    def refusal(self, part: str) -> InvalidInput:
        """Of a field, or a term of it, that cannot be read."""
        names = f" ({next(iter(self.names))}...)" if self.names else ""
        values = f"{self.low}-{self.high}{names}"
        rule = f"{self.name} must be made of {values}, *, ranges that rise and steps of at most {self.size}"
        return InvalidInput(_EXPRESSION, rule, part)

    def number(self, text: str) -> int:
        """The value that a number or a name stands for."""
        value = self.names[text] if text in self.names else int(text) if text.isdigit() else -1
        if not self.low <= value <= self.high:
            raise self.refusal(text)
        return value


_FIELDS: Final = (
    _Field("second", 0, 59, 60),
    _Field("minute", 0, 59, 60),
    _Field("hour", 0, 23, 24),
    _Field("day-of-month", 1, 31, 31),
    _Field("month", 1, 12, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field("day-of-week", 0, 7, 7, {name: number for number, name in enumerate(_WEEKDAYS)}),
)
_DAY, _WEEKDAY = _FIELDS[3], _FIELDS[5]


def _split(expression: str) -> list[str]:
    """The five or six fields, in capitals."""
    text = expression.strip().lower().replace("\t", " ")
    if len(expression) > MAX_EXPRESSION_CHARS or not (expression.isascii() and text.isprintable()):
        raise InvalidInput(
            _EXPRESSION, f"must be at most {MAX_EXPRESSION_CHARS} printable ASCII characters", expression
        )
    if text.startswith("@") and text not in _ALIASES:
        raise InvalidInput(_EXPRESSION, f"must be fields or one of {' '.join(_ALIASES)}", expression)
    parts = _ALIASES.get(text, text).upper().split()
    if len(parts) not in (5, 6):
        rule = "must have five fields (minute hour day-of-month month day-of-week), or six with the second first"
        raise InvalidInput(_EXPRESSION, rule, expression)
    return parts


def _matched(column: _Field, part: str) -> tuple[str, ...]:
    """What a field matches: `*`, or numbers, and what only a calendar can turn into numbers."""
    if part == "*":
        return (part,)
    numbers: set[int] = set()
    calendar: list[str] = []
    for term in part.split(","):
        if (column is _DAY and term == "L") or (column is _WEEKDAY and _DAY_OF_MONTHS_WEEK.fullmatch(term)):
            calendar.append(term)
        else:
            numbers.update(_numbers(column, term))
    return (*map(str, sorted(numbers)), *calendar)


def _numbers(column: _Field, term: str) -> list[int]:
    """The values of `n`, `a-b`, `*/step`, `a-b/step`, or `a/step`, which runs to the field's end."""
    read = _TERM.fullmatch(term)
    if read is None or term == "*":
        raise column.refusal(term)
    step = int(read["step"] or 1)
    if read["low"] is None:
        low, high = column.low, column.low + column.size - 1
    else:
        low = column.number(read["low"])
        open_end = low if read["step"] is None else column.high
        high = open_end if read["high"] is None else column.number(read["high"])
    if not 1 <= step <= column.size:
        raise column.refusal(term)
    if low > high:
        if not column.names or step > 1:
            raise column.refusal(term)
        high += column.size
    return [(value - column.low) % column.size + column.low for value in range(low, high + 1, step)]


def _check_days(parts: list[str], columns: list[tuple[str, ...]]) -> None:
    """Raises InvalidInput for days that never come, and for a `#` or `L` whose meaning together is not plain."""
    days, months, weekdays = columns[-3:]
    if days != ("*",) and "L" not in days:
        longest = _LONGEST_DAYS if months == ("*",) else [_LONGEST_DAYS[int(month) - 1] for month in months]
        if int(days[0]) > max(longest):
            raise InvalidInput(_EXPRESSION, "day-of-month never comes in its month", f"{parts[-3]} {parts[-2]}")
    of_months_week = [not weekday.isdigit() for weekday in weekdays if weekday != "*"]
    if any(of_months_week) and not (all(of_months_week) and days == ("*",)):
        rule = "day-of-week with # or L must have no other days beside it, and * as day-of-month"
        raise InvalidInput(_EXPRESSION, rule, f"{parts[-3]} {parts[-1]}")


# From times on the wall to instants, in epoch seconds.


def _next_of_fixed_time_s(walls: _WallTimes, zone: ZoneInfo, after_s: int) -> int:
    return _first_instant_s(zone, walls.after(_reached_wall_s(zone, after_s)))


def _first_instant_s(zone: ZoneInfo, wall_s: int) -> int:
    """When clocks show this time first, or the end of the gap that skips it."""
    moment = datetime.fromtimestamp(wall_s, UTC).replace(tzinfo=zone)
    before_s, after_s = _seconds(moment.utcoffset()), _seconds(moment.replace(fold=1).utcoffset())
    if before_s < after_s:
        return _change_s(zone, wall_s - after_s, wall_s - before_s)
    return wall_s - before_s


def _reached_wall_s(zone: ZoneInfo, at_s: int) -> int:
    """The latest time that clocks have shown, or skipped, by `at_s`: while time repeats itself, the end of that."""
    moment = datetime.fromtimestamp(at_s, zone)
    offset_s = _seconds(moment.utcoffset())
    if moment.fold == 0:
        return at_s + offset_s
    before_s = _seconds(moment.replace(fold=0).utcoffset())
    return _change_s(zone, at_s - (before_s - offset_s), at_s) + before_s - 1


def _next_of_interval_s(walls: _WallTimes, zone: ZoneInfo, after_s: int) -> int:
    start_s = after_s + 1
    gap_end_s: int | None = None
    while True:
        # As if the offset at the start held on: then look for its change on the way.
        offset_s = _offset_s(zone, start_s)
        found_s = walls.after(start_s + offset_s - 1) - offset_s
        if gap_end_s is not None and found_s - gap_end_s > _YEAR_S:
            return gap_end_s
        near_s = min(found_s, start_s + _REACH_S)
        if _offset_s(zone, near_s) != offset_s:
            start_s = _change_s(zone, start_s, near_s)
            skipped_s = _offset_s(zone, start_s) - offset_s
            if gap_end_s is None and found_s < start_s + skipped_s:
                gap_end_s = start_s
        elif near_s == found_s:
            return found_s
        else:
            # Offsets differ by less, so that no clock shows a matching time any earlier.
            start_s = found_s - _REACH_S


def _offset_s(zone: ZoneInfo, at_s: int) -> int:
    return _seconds(datetime.fromtimestamp(at_s, zone).utcoffset())


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None, "every zone has an offset at any time"
    return offset // timedelta(seconds=1)


def _change_s(zone: ZoneInfo, before_s: int, after_s: int) -> int:
    """The first second with another offset than `before_s` has; `after_s` has it, and there is one change between."""
    offset_s = _offset_s(zone, before_s)
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        if _offset_s(zone, middle_s) == offset_s:
            before_s = middle_s
        else:
            after_s = middle_s
    return after_s
