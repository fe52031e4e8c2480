"""The waits of a worker, with everything filled in; a test names only what it is about."""

from __future__ import annotations

from typing import Any

from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.items import REQUEST_IDS
from tests.rpc.scripted_worker import ScriptedWorker

Fields = Any  # Any: whatever the message takes

CHILD = "c"
"""The workflow of the runs that are waited for; its runs stand in the queue `children`."""


def ms(length: int) -> Duration:
    """So many milliseconds."""
    return Duration(seconds=length // 1000, nanos=length % 1000 * 1_000_000)


def a_wait(name: str = "step", **changes: Fields) -> pb.Wait:
    """A step that waits; its kind is among the changes."""
    return pb.Wait(**{"step_name": name, "step_seq": 1, **changes})


def a_sleep(name: str = "sleep", length_ms: int = 60_000, **changes: Fields) -> pb.Wait:
    """A step that sleeps."""
    return a_wait(name, timer=pb.TimerWait(delay=ms(length_ms)), **changes)


def an_event_wait(name: str = "event", event: str = "paid", *, group: str = "", **changes: Fields) -> pb.Wait:
    """A step that waits for an event; the changes are of what it waits for."""
    return a_wait(name, group=group, event=pb.EventWait(event_name=event, **changes))


def a_child_wait(name: str = "child", timeout: Duration | None = None, **changes: Fields) -> pb.Wait:
    """A step that starts a run and waits for it; the changes are of that run."""
    start = pb.ChildStart(**{"workflow": CHILD, "queue": "children", **changes})
    return a_wait(name, child=pb.ChildWait(start=start, timeout=timeout))


def a_run_wait(run_id: str, name: str = "child") -> pb.Wait:
    """A step that waits for a run that exists, or not."""
    return a_wait(name, child=pb.ChildWait(run_id=run_id))


def a_token_wait(name: str = "token", timeout: Duration | None = None, **changes: Fields) -> pb.Wait:
    """A step that waits for somebody to complete its token."""
    return a_wait(name, token=pb.TokenWait(timeout=timeout), **changes)


def a_suspension(assignment: pb.Assignment | str, *waits: pb.Wait, **changes: Fields) -> pb.Suspension:
    """A handler that can go on only when one of these waits is over."""
    token = assignment if isinstance(assignment, str) else assignment.lease_token
    return pb.Suspension(**{"request_id": next(REQUEST_IDS), "lease_token": token, "waits": waits, **changes})


def a_parking(assignment: pb.Assignment | str, *waits: pb.Wait, **changes: Fields) -> pb.Suspension:
    """The same of a handler that its worker keeps in memory."""
    return a_suspension(assignment, *waits, **{"park": True, **changes})


def a_command(assignment: pb.Assignment | str, name: str = "", **changes: Fields) -> pb.StepCommand:
    """An effect and its step in one."""
    token = assignment if isinstance(assignment, str) else assignment.lease_token
    fields = {"request_id": next(REQUEST_IDS), "lease_token": token, "step_name": name, "step_seq": 1}
    return pb.StepCommand(**{**fields, **changes})


def some_waits(assignment: pb.Assignment | str, *waits: pb.Wait, **changes: Fields) -> pb.StepCommand:
    """Waits that begin while the handler is at work."""
    return a_command(assignment, wait=pb.WaitCommand(waits=waits), **changes)


def a_start(assignment: pb.Assignment | str, name: str = "start", **changes: Fields) -> pb.StepCommand:
    """A run that a step starts and does not wait for; the changes are of that run."""
    return a_command(assignment, name, start_child=pb.ChildStart(**{"workflow": CHILD, "queue": "children", **changes}))


async def token_of(worker: ScriptedWorker, assignment: pb.Assignment, name: str = "token", **changes: Fields) -> str:
    """The token of a step, which waits for somebody to complete it from now on."""
    answer = await worker.do(some_waits(assignment, a_token_wait(name, **changes)))
    [step] = answer.resolutions
    assert step.token, step
    return step.token
