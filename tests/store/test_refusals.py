"""Until when Redis is taken to refuse calls."""

from __future__ import annotations

import hiredis
import pytest

from redflow_server.store import refusals
from redflow_server.store.refusals import TRY_WRITE, Refusals

READONLY = "READONLY You can't write against a read only replica."
NOPERM = "NOPERM this user has no permissions"


def test_it_is_over_for_a_script_that_is_answered() -> None:
    met = Refusals()
    met.met("release", READONLY)
    met.answered([("enqueue", b"OK"), ("release", hiredis.ReplyError(READONLY))])
    assert met.keep_from_work
    met.answered([("release", b"OK")])
    assert not met


@pytest.mark.parametrize("message", [READONLY, "OOM command not allowed", "BUSY Redis is busy", "MISCONF Redis is"])
def test_it_is_over_for_all_scripts_once_redis_writes(message: str) -> None:
    met = Refusals()
    met.met("release", message)
    met.answered([(TRY_WRITE, hiredis.ReplyError(message))])
    assert met
    met.answered([(TRY_WRITE, 0)])
    assert not met


def test_a_right_is_a_script_s_own_and_may_be_there_again_when_none_has_lacked_it_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met = Refusals()
    met.met("release", NOPERM)
    met.answered([(TRY_WRITE, 0)])
    assert met.keep_from_work
    monkeypatch.setattr(refusals, "RIGHTS_LAST_S", 0.0)
    met.answered([(TRY_WRITE, 0)])
    assert not met
