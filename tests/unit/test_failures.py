"""Which failures may be retried."""

from __future__ import annotations

import pytest

from redflow_server.domain.failures import Failure, FailureKind, RetryHint

BY_KIND = {
    FailureKind.ERROR: True,
    FailureKind.TIMEOUT: True,
    FailureKind.CANCELED: False,
    FailureKind.VALIDATION: False,
    FailureKind.UNKNOWN_WORKFLOW: False,
    FailureKind.SERIALIZATION: False,
    FailureKind.NON_RETRIABLE: False,
    FailureKind.WORKER_LOST: True,
    FailureKind.RUN_NOT_FOUND: True,
    FailureKind.NON_DETERMINISTIC: False,
    FailureKind.AWAIT_CYCLE: True,
}
"""Whether another attempt may follow a failure of a kind, when the failing code says nothing about it."""


def test_the_table_names_every_kind() -> None:
    assert BY_KIND.keys() == set(FailureKind)


@pytest.mark.parametrize(("kind", "is_retried"), BY_KIND.items())
def test_without_a_hint_the_kind_decides(kind: FailureKind, is_retried: bool) -> None:
    assert Failure("E", "m", kind).may_be_retried is is_retried


@pytest.mark.parametrize("kind", FailureKind)
def test_a_hint_is_stronger_than_the_kind(kind: FailureKind) -> None:
    assert Failure("E", "m", kind, hint=RetryHint.RETRY).may_be_retried
    assert not Failure("E", "m", kind, hint=RetryHint.NO_RETRY).may_be_retried


def test_a_cause_that_may_not_be_retried_does_not_decide_for_its_effect() -> None:
    cause = Failure("E", "m", FailureKind.NON_RETRIABLE, hint=RetryHint.NO_RETRY)
    assert Failure("E", "m", cause=cause).may_be_retried
