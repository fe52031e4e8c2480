"""Requests of runs that wait for other runs, and of failure handlers, with everything filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from redflow_server.domain.failures import Failure
from redflow_server.domain.ids import new_run_id
from redflow_server.domain.leases import AwaitRuns, ClaimedRun, EndFailing, Lane, Suspend, Wait
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun

Changes = Any  # Any: fields of the dataclass that is built

CHILD_LANE: Final = Lane("children", "c")
"""Where the runs stand that runs of these tests wait for."""


def a_wait(name: str = "child", **changes: Changes) -> Wait:
    """A step that starts a run of `CHILD_LANE` and waits for it; changes are of that run."""
    start = NewRun(new_run_id(), CHILD_LANE.workflow, Payload(b'{"n":2}'), queue=CHILD_LANE.queue, is_typed=True)
    return Wait(name, 1, replace(start, **changes))


def a_wait_for(run_id: str, name: str = "child") -> Wait:
    """A step that waits for a run that exists, or not."""
    return Wait(name, 1, NewRun(run_id, "", Payload(b"{}")))


def a_suspension(lease: ClaimedRun, *waits: Wait, **changes: Changes) -> Suspend:
    """A handler that can only go on when one of its waits is over."""
    return replace(Suspend(lease.run_id, lease.lease_token, 0, waits or (a_wait(),)), **changes)


def some_waits(lease: ClaimedRun, *waits: Wait, **changes: Changes) -> AwaitRuns:
    """Waits of a handler that goes on itself."""
    return replace(AwaitRuns(lease.run_id, lease.lease_token, 0, waits or (a_wait(),)), **changes)


def an_end_of_failing(lease: ClaimedRun, failure: Failure | None = None) -> EndFailing:
    """The report of a failure handler that has run; with a failure of its own when it raised."""
    return EndFailing(lease.run_id, lease.lease_token, 0, failure)
