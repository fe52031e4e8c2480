"""What users may call things, and how large their data may be."""

from __future__ import annotations

import pytest

from redflow_server.domain.errors import InvalidInput, PayloadTooLarge
from redflow_server.domain.names import MAX_METADATA_BYTES, MAX_NAME_BYTES, check_name, check_payload
from redflow_server.domain.payloads import Payload

CLEF = "\N{MUSICAL SYMBOL G CLEF}"

DATA = {
    "a space": " ",
    "a space at each end": " a ",
    "colons": "a:b::c",
    "braces": "{a}",
    "a path": "../a/b\\c",
    "quotes": "\"'`",
    "what formats": "%s {0} $1",
    "letters of other scripts": "\N{GREEK SMALL LETTER OMEGA}\N{HEBREW LETTER ALEF}",
    "a letter beyond 16 bits": CLEF,
    "a combining mark": "e\N{COMBINING ACUTE ACCENT}",
    "a joiner": "\N{ZERO WIDTH JOINER}",
    "a right-to-left mark": "\N{RIGHT-TO-LEFT MARK}",
    "a line separator": "\N{LINE SEPARATOR}",
    "a private letter": "\ue000",
    "a number": "0",
}


@pytest.mark.parametrize("name", DATA.values(), ids=DATA.keys())
def test_everything_printable_in_a_name_is_data(name: str) -> None:
    assert check_name("queue", name) == name


@pytest.mark.parametrize("letter", ["a", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{EURO SIGN}", CLEF])
def test_the_limit_of_a_name_counts_bytes_not_letters(letter: str) -> None:
    fits = letter * (MAX_NAME_BYTES // len(letter.encode()))
    assert check_name("queue", fits) == fits

    with pytest.raises(InvalidInput, match=f"at most {MAX_NAME_BYTES} bytes") as refused:
        check_name("queue", fits + letter)
    assert f"has {len((fits + letter).encode())}" in str(refused.value)


def test_a_name_is_not_empty() -> None:
    with pytest.raises(InvalidInput, match="queue must not be empty"):
        check_name("queue", "")


@pytest.mark.parametrize("number", [*range(0x20), 0x7F, *range(0x80, 0xA0)], ids=hex)
def test_a_name_has_no_control_character(number: int) -> None:
    for name in (chr(number), f"a{chr(number)}", f"{CLEF}{chr(number)}b"):
        with pytest.raises(InvalidInput, match="control characters"):
            check_name("queue", name)


@pytest.mark.parametrize("number", [0xD800, 0xDBFF, 0xDC00, 0xDFFF], ids=hex)
def test_half_of_a_surrogate_pair_is_no_name(number: int) -> None:
    with pytest.raises(InvalidInput, match="queue must not contain"):
        check_name("queue", f"a{chr(number)}")


def test_a_refusal_names_the_field_the_rule_and_what_came_in_short() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_name("open.queues", CLEF * 1000)

    details = refused.value.details
    assert details["field"] == "open.queues"
    assert details["rule"].startswith("must be at most 256 bytes")
    assert details["came"].isascii()
    assert len(details["came"]) <= 100


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_payload_may_be_as_large_as_the_limit(size: int) -> None:
    payload = Payload(b"x" * size)
    assert check_payload("input", payload, 100) is payload


def test_a_payload_over_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(PayloadTooLarge, match="input must be at most 100 bytes; got 101 bytes") as refused:
        check_payload("input", Payload(b"x" * 101), 100)
    assert refused.value.details == {"field": "input", "limit_bytes": "100", "size_bytes": "101"}


def test_the_content_type_counts_as_metadata_and_both_are_counted_in_bytes() -> None:
    letter = "\N{EURO SIGN}"
    room = MAX_METADATA_BYTES - len("a/b") - len("k")
    fits = Payload(b"", "a/b", (("k", letter * (room // 3) + "x" * (room % 3)),))
    assert check_payload("input", fits, 100) is fits

    ((name, value),) = fits.metadata
    for too_large in (
        Payload(b"", "a/b", ((name, f"{value}x"),)),
        Payload(b"", "a/b", ((f"{name}x", value),)),
        Payload(b"", "a/bc", fits.metadata),
        Payload(b"", "a/b", (*fits.metadata, ("x", ""))),
    ):
        with pytest.raises(InvalidInput, match=f"input.metadata must be at most {MAX_METADATA_BYTES} bytes"):
            check_payload("input", too_large, 100)
