"""Times, lengths of time and pages on the wire."""

from __future__ import annotations

import base64
from typing import Final

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.errors import InvalidInput
from redflow_server.domain.registry import MAX_DURATION_MS
from redflow_server.rpc import convert

INT64_MAX: Final = 2**63 - 1
YEAR_1_MS: Final = -62_135_596_800_000
YEAR_9999_MS: Final = 253_402_300_799_999

# ---- moments ----


@pytest.mark.parametrize("at_ms", [YEAR_1_MS, -1001, -1000, -1, 0, 1, 999, 1000, 1_700_000_000_123, YEAR_9999_MS])
def test_a_moment_comes_back_to_the_millisecond(at_ms: int) -> None:
    message = convert.timestamp(at_ms)
    assert message is not None
    assert 0 <= message.nanos < 1_000_000_000
    assert convert.at_ms_of("available_time", message) == at_ms


def test_no_moment_stays_none() -> None:
    assert convert.timestamp(None) is None


@pytest.mark.parametrize("nanos", [0, 1, 999_999])
def test_parts_of_a_millisecond_are_cut_off(nanos: int) -> None:
    assert convert.at_ms_of("available_time", Timestamp(seconds=1, nanos=nanos)) == 1000


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (YEAR_1_MS // 1000 - 1, 999_999_999),
        (YEAR_9999_MS // 1000 + 1, 0),
        (INT64_MAX, 0),
        (-INT64_MAX - 1, 0),
        (0, -1),
        (0, 1_000_000_000),
    ],
)
def test_a_moment_outside_the_years_1_to_9999_is_refused(seconds: int, nanos: int) -> None:
    with pytest.raises(InvalidInput, match="available_time must be within the years 1 to 9999"):
        convert.at_ms_of("available_time", Timestamp(seconds=seconds, nanos=nanos))


# ---- lengths of time ----


@pytest.mark.parametrize("length_ms", [0, 1, 999, 1000, 1001, MAX_DURATION_MS])
def test_a_length_of_time_comes_back_to_the_millisecond(length_ms: int) -> None:
    assert convert.length_ms_of("delay", convert.duration(length_ms)) == length_ms


@pytest.mark.parametrize(("nanos", "length_ms"), [(1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2)])
def test_parts_of_a_millisecond_count_as_a_whole_one_so_that_a_short_time_is_not_none(
    nanos: int, length_ms: int
) -> None:
    assert convert.length_ms_of("delay", Duration(nanos=nanos)) == length_ms


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (-1, 0),
        (0, -1_000_000),
        (MAX_DURATION_MS // 1000, 1),
        (MAX_DURATION_MS // 1000 + 1, 0),
        (INT64_MAX, 999_999_999),
        (-INT64_MAX - 1, 0),
    ],
)
def test_a_length_of_time_below_zero_or_over_a_hundred_years_is_refused(seconds: int, nanos: int) -> None:
    with pytest.raises(InvalidInput, match="delay must be between 0 and 100 years"):
        convert.length_ms_of("delay", Duration(seconds=seconds, nanos=nanos))


def test_a_length_of_time_that_was_not_said_is_none_and_one_of_zero_is_not() -> None:
    message = worker_pb2.StepReport()
    assert convert.optional_ms("elapsed", message, "elapsed") is None
    message.elapsed.SetInParent()
    assert convert.optional_ms("elapsed", message, "elapsed") == 0


# ---- pages ----


@pytest.mark.parametrize("number", [1, 50, 2**42, 10**15 - 1])
def test_a_page_token_brings_back_the_number_where_the_next_page_begins(number: int) -> None:
    assert convert.number_of(convert.page_token(number)) == number


@pytest.mark.parametrize("name", ["a", "a:b", "\N{MUSICAL SYMBOL G CLEF}", "\x7f", "x" * 256])
def test_a_page_token_brings_back_the_name_where_the_next_page_begins(name: str) -> None:
    token = convert.page_token(name)
    assert token.isascii()
    assert convert.position_of(token) == name


@pytest.mark.parametrize("nothing", [None, ""])
def test_the_last_page_has_no_token_and_without_one_a_listing_begins_at_its_start(nothing: str | None) -> None:
    assert convert.page_token(nothing) == ""
    assert convert.position_of("") == ""
    assert convert.number_of("") is None


def encoded(text: str | bytes) -> str:
    return base64.urlsafe_b64encode(text if isinstance(text, bytes) else text.encode()).decode()


FOREIGN = {
    "not padded": "MQ",
    "one letter": "M",
    "no letter of the alphabet": "!!!!",
    "spaces": "    ",
    "letters of another script": "\N{EURO SIGN}" * 4,
    "padding alone": "====",
    "bytes that are no text": encoded(b"\xff\xfe"),
}


@pytest.mark.parametrize("token", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_token_that_no_listing_answered_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="page_token must be one that a listing answered"):
        convert.position_of(token)
    with pytest.raises(InvalidInput, match="page_token must be one that a listing answered"):
        convert.number_of(token)


NO_NUMBERS = {
    "a name": "default",
    "a negative number": "-1",
    "a fraction": "1.5",
    "an exponent": "1e3",
    "a space": " 1",
    "a raised digit": "\N{SUPERSCRIPT TWO}",
    "more digits than any number of ours": "9" * 5000,
    "a digit of another script": "\N{ARABIC-INDIC DIGIT ONE}",
}


@pytest.mark.parametrize("text", NO_NUMBERS.values(), ids=NO_NUMBERS.keys())
def test_a_token_that_holds_no_number_is_refused_where_one_is_needed(text: str) -> None:
    with pytest.raises(InvalidInput, match="page_token must be one that a listing answered"):
        convert.number_of(encoded(text))


@pytest.mark.parametrize(("asked", "size"), [(0, 50), (-1, 50), (1, 1), (500, 500), (501, 500), (2**31 - 1, 500)])
def test_a_page_has_at_most_500_entries_and_50_when_nothing_is_asked_for(asked: int, size: int) -> None:
    assert convert.page_size(asked) == size
