"""Identifiers."""

from __future__ import annotations

import itertools

import pytest

from redflow_server.domain.ids import RUN_ID, new_name, new_run_id, new_secret, run_id_for, run_id_of

SECRET = "0123456789abcde"


def test_a_new_run_id_is_one_that_callers_may_ask_for_and_is_never_the_same() -> None:
    ids = {new_run_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(RUN_ID.fullmatch(run_id) for run_id in ids)
    assert {len(run_id) for run_id in ids} == {26}, "it just fits a small allocation of Redis"


def test_a_token_is_made_of_a_run_id_and_a_secret_and_says_which_run_it_is_for() -> None:
    secrets = {new_secret() for _ in range(1000)}
    assert len(secrets) == 1000
    for secret in secrets:
        run_id = new_run_id()
        assert run_id_of(f"{run_id}.{secret}") == run_id


@pytest.mark.parametrize("run_id", ["r", "R_-9", "x" * 64, "-", "_"])
def test_ids_made_elsewhere_are_taken_from_their_tokens_too(run_id: str) -> None:
    assert run_id_of(f"{run_id}.{SECRET}") == run_id


MALFORMED = {
    "nothing": "",
    "no secret": "run_1",
    "an empty secret": "run_1.",
    "no run": f".{SECRET}",
    "a short secret": f"run_1.{SECRET[1:]}",
    "a long secret": f"run_1.{SECRET}f",
    "a long run id": f"{'x' * 65}.{SECRET}",
    "two dots": f"run.1.{SECRET}",
    "another separator": f"run_1:{SECRET}",
    "a key's separator in the run id": f"run:1.{SECRET}",
    "a space before": f" run_1.{SECRET}",
    "a line's end behind": f"run_1.{SECRET}\n",
    "a NUL in the secret": f"run_1.{SECRET[1:]}\x00",
    "a letter of another script": f"r\N{GREEK SMALL LETTER OMEGA}n.{SECRET}",
    "a digit of another script": f"run_\N{ARABIC-INDIC DIGIT ONE}.{SECRET}",
    "a padded secret": f"run_1.{SECRET[1:]}=",
    "half of a surrogate pair": f"run_1\ud800.{SECRET}",
}


@pytest.mark.parametrize("token", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_token_is_for_no_run(token: str) -> None:
    assert run_id_of(token) is None


def test_the_same_parts_give_the_same_run_id() -> None:
    assert run_id_for("request", "abc") == run_id_for("request", "abc")
    assert RUN_ID.fullmatch(run_id_for("request", "abc"))


def test_parts_that_read_the_same_when_they_are_joined_give_different_run_ids() -> None:
    pieces = ("", "a", "b", "ab", "1:a", "1:", ":", "0:", "1:a1:b", "\x00", "\N{EURO SIGN}")
    parts = [
        *itertools.product(pieces, repeat=1),
        *itertools.product(pieces, repeat=2),
        *itertools.product(pieces, repeat=3),
        (),
    ]
    assert len({run_id_for(*one) for one in parts}) == len(parts)


def test_names_of_processes_and_sessions_have_no_space_since_they_travel_in_a_list() -> None:
    names = {new_name() for _ in range(1000)}
    assert len(names) == 1000
    assert all(RUN_ID.fullmatch(name) for name in names)
