"""Completion tokens: each names its step, and what is none names no step."""

from __future__ import annotations

import base64

import pytest

from redflow_server.domain.errors import TokenNotFound
from redflow_server.domain.ids import new_run_id
from redflow_server.domain.tokens import TokenStep, new_token, step_of

SECRET = "0123456789abcde"
STEP = base64.urlsafe_b64encode(b"step").decode().rstrip("=")


@pytest.mark.parametrize("step", ["a", "ab", "abc", "abcd", "a.b:c/d|e f", "🚀 é", ">>>???", "x" * 256, "🚀" * 64])
def test_a_token_names_its_run_and_step(step: str) -> None:
    run_id = new_run_id()
    assert step_of(new_token(run_id, step)) == TokenStep(run_id, step)


def test_a_run_id_made_elsewhere_may_be_as_long_as_they_get() -> None:
    for run_id in ("r", "tok_", "_-" * 32):
        assert step_of(new_token(run_id, "step")) == TokenStep(run_id, "step")


def test_no_two_tokens_are_the_same_and_each_can_stand_in_a_url_as_it_is() -> None:
    tokens = {new_token("run_1", "ask >>> her?") for _ in range(1000)}
    assert len(tokens) == 1000
    for token in tokens:
        assert token.isascii()
        assert token.replace("_", "").replace("-", "").replace(".", "").isalnum()


MALFORMED = {
    "nothing": "",
    "a lease token": f"run_1.{SECRET}",
    "a run id": "run_1",
    "another beginning": f"tik_run_1.{STEP}.{SECRET}",
    "no step": f"tok_run_1.{SECRET}",
    "an empty step": f"tok_run_1..{SECRET}",
    "no run": f"tok_.{STEP}.{SECRET}",
    "a long run id": f"tok_{'x' * 65}.{STEP}.{SECRET}",
    "a long step": f"tok_run_1.{'x' * 401}.{SECRET}",
    "no secret": f"tok_run_1.{STEP}.",
    "a short secret": f"tok_run_1.{STEP}.{SECRET[1:]}",
    "a long secret": f"tok_run_1.{STEP}.{SECRET}f",
    "a space before": f" tok_run_1.{STEP}.{SECRET}",
    "a line's end behind": f"tok_run_1.{STEP}.{SECRET}\n",
    "padding": f"tok_run_1.{STEP}==.{SECRET}",
    "a step that is no base64": f"tok_run_1.x.{SECRET}",
    "a step that is no UTF-8": f"tok_run_1._w.{SECRET}",
    "a digit of another script": f"tok_run_\N{ARABIC-INDIC DIGIT ONE}.{STEP}.{SECRET}",
    "half of a surrogate pair": f"tok_run_1\ud800.{STEP}.{SECRET}",
}


@pytest.mark.parametrize("token", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_token_is_for_no_step(token: str) -> None:
    with pytest.raises(TokenNotFound):
        step_of(token)
