"""The states of a run: which may follow which."""

from __future__ import annotations

import pytest

from redflow_server.domain.states import ALLOWED, OPEN, TERMINAL, RunStatus


def test_every_state_says_what_may_follow_it() -> None:
    assert ALLOWED.keys() == set(RunStatus)


@pytest.mark.parametrize("status", RunStatus)
def test_a_state_is_either_open_or_terminal(status: RunStatus) -> None:
    assert status.is_terminal == (status in TERMINAL) == (status not in OPEN)


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_nothing_leaves_a_terminal_state(status: RunStatus) -> None:
    assert ALLOWED[status] == frozenset()


@pytest.mark.parametrize("status", sorted(OPEN))
def test_every_open_state_may_be_canceled_and_may_fail(status: RunStatus) -> None:
    assert {RunStatus.CANCELED, RunStatus.FAILED} <= ALLOWED[status]


@pytest.mark.parametrize("status", RunStatus)
def test_no_state_follows_itself(status: RunStatus) -> None:
    assert status not in ALLOWED[status]


def test_only_a_claim_starts_a_run() -> None:
    assert [status for status in RunStatus if RunStatus.RUNNING in ALLOWED[status]] == [RunStatus.QUEUED]


def test_only_a_run_at_work_can_succeed_or_begin_to_wait() -> None:
    for status in (RunStatus.SUCCEEDED, RunStatus.WAITING, RunStatus.SCHEDULED):
        assert [before for before in RunStatus if status in ALLOWED[before]] == [RunStatus.RUNNING]


def test_every_open_state_leads_to_an_end() -> None:
    for status in OPEN:
        reached, frontier = {status}, {status}
        while frontier:
            frontier = {after for before in frontier for after in ALLOWED[before]} - reached
            reached |= frontier
        assert reached >= TERMINAL
