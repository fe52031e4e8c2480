"""Requests of runs that wait, for whatever, and of failure handlers, with everything filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from redflow_server.domain.failures import Failure
from redflow_server.domain.ids import new_run_id
from redflow_server.domain.leases import BeginWaits, ClaimedRun, ClosePolicy, EndFailing, Lane, StartStep, Suspend
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun, Step
from redflow_server.domain.tokens import Completion, new_token, step_of
from redflow_server.domain.waits import ChildWait, EventWait, TimerWait, TokenWait, Wait
from redflow_server.store.store import Store

Changes = Any  # Any: fields of the dataclass that is built

CHILD_LANE: Final = Lane("children", "c")
"""Where the runs stand that runs of these tests wait for."""
SLEEP_MS: Final = 60_000


def a_child(**changes: Changes) -> NewRun:
    """A run of `CHILD_LANE`, as a step starts it."""
    start = NewRun(new_run_id(), CHILD_LANE.workflow, Payload(b'{"n":2}'), queue=CHILD_LANE.queue, is_typed=True)
    return replace(start, **changes)


def a_wait(name: str = "child", **changes: Changes) -> Wait:
    """A step that starts a run of `CHILD_LANE` and waits for it; changes are of that run."""
    return Wait(name, 1, ChildWait(a_child(**changes)))


def a_wait_for(run_id: str, name: str = "child") -> Wait:
    """A step that waits for a run that exists, or not."""
    return Wait(name, 1, ChildWait(NewRun(run_id, "", Payload(b"{}"))))


def child_id(wait: Wait) -> str:
    """The run that a step waits for, as it names it."""
    assert isinstance(wait.target, ChildWait)
    return wait.target.start.run_id


def a_sleep(name: str = "sleep", ms: int = SLEEP_MS) -> Wait:
    """A step that sleeps."""
    return Wait(name, 1, TimerWait(), timeout_ms=ms)


def a_sleep_until(at_ms: int, name: str = "sleep") -> Wait:
    """A step that sleeps until a time."""
    return Wait(name, 1, TimerWait(at_ms))


def an_event_wait(name: str = "event", event: str = "paid", key: str | None = None, **changes: Changes) -> Wait:
    """A step that waits for an event without a key, or with one."""
    return replace(Wait(name, 1, EventWait(event, key)), **changes)


def a_token_wait(lease: ClaimedRun, name: str = "token", **changes: Changes) -> Wait:
    """A step that waits for somebody to complete a token."""
    return replace(Wait(name, 1, TokenWait(new_token(lease.run_id, name))), **changes)


def token_of(wait: Wait) -> str:
    """The token that a step waits for."""
    assert isinstance(wait.target, TokenWait)
    return wait.target.token


def a_completed_token(token: str, output: bytes | None = b'"yes"', failure: Failure | None = None) -> Completion:
    """What somebody says who was given a token."""
    payload = None if failure or output is None else Payload(output)
    return Completion(token, step_of(token), payload, failure)


def with_timeout(wait: Wait, timeout_ms: int = SLEEP_MS) -> Wait:
    """A wait that is over after some time, whatever it is for."""
    return replace(wait, timeout_ms=timeout_ms)


def in_race(*waits: Wait, group: str = "race") -> tuple[Wait, ...]:
    """Waits of which the first to end withdraws the others."""
    return tuple(replace(wait, group=group) for wait in waits)


def a_suspension(lease: ClaimedRun, *waits: Wait, **changes: Changes) -> Suspend:
    """A handler that can only go on when one of its waits is over."""
    return replace(Suspend(lease.run_id, lease.lease_token, 0, waits or (a_wait(),)), **changes)


def a_parking(lease: ClaimedRun, *waits: Wait, **changes: Changes) -> Suspend:
    """A handler that can only go on when one of its waits is over, and stays in its worker's memory until then."""
    return a_suspension(lease, *waits, **{"parks": True, **changes})


def some_waits(lease: ClaimedRun, *waits: Wait, **changes: Changes) -> BeginWaits:
    """Waits of a handler that goes on itself."""
    return replace(BeginWaits(lease.run_id, lease.lease_token, 0, waits or (a_wait(),)), **changes)


def a_start(lease: ClaimedRun, name: str = "start", start: NewRun | None = None, **changes: Changes) -> StartStep:
    """A step that starts a run and does not wait for it; nothing becomes of that run when this one ends."""
    step = StartStep(lease.run_id, lease.lease_token, 0, name, 1, start or a_child(), ClosePolicy.ABANDON)
    return replace(step, **changes)


def an_end_of_failing(lease: ClaimedRun, failure: Failure | None = None) -> EndFailing:
    """The report of a failure handler that has run; with a failure of its own when it raised."""
    return EndFailing(lease.run_id, lease.lease_token, 0, failure)


async def read_step(store: Store, run_id: str, name: str) -> Step:
    """One step of a run, with its value."""
    [step] = await store.read_steps(run_id, 2**24, [name])
    return step
