"""What happens to others: waits get their outcome, rivals are withdrawn, runs that nobody needs any more end.

One script does so much of it; the rest stands in the outbox.
"""

from __future__ import annotations

from dataclasses import dataclass

from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from tests.oracle.model.moves import enter_lane, finish, progress
from tests.oracle.model.world import MAX_EFFECTS, Moment, OpenWait, RunOnRecord


@dataclass(frozen=True)
class Outcome:
    """What a wait comes to. An absent value is told by its meta."""

    status: StepStatus
    value: bytes = b""
    meta: bytes = b""
    target: str | None = None


NOTHING = Outcome(StepStatus.SUCCEEDED, meta=b"none")
NOBODY_NEEDS_IT = "no run needs it any more"


def quoted(text: str) -> bytes:
    """A JSON string as Lua writes it."""
    known = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    escaped = (
        known.get(letter) or (f"\\u{ord(letter):04x}" if ord(letter) < 32 or ord(letter) == 127 else letter)
        for letter in text
    )
    return f'"{"".join(escaped)}"'.encode()


def failed_with(kind: str, type_: str, message: str, cause: bytes | None = None) -> Outcome:
    """A failure that the store decides on."""
    more = b',"cause":' + cause if cause else b""
    start = f'{{"type":"{type_}","message":'.encode()
    return Outcome(StepStatus.FAILED, start + quoted(message) + f',"kind":"{kind}"'.encode() + more + b"}")


def is_missing(run_id: str) -> Outcome:
    return failed_with("run_not_found", "RunNotFoundError", f"run {run_id} does not exist")


def outcome_of(run: RunOnRecord) -> Outcome:
    """What those who wait for a run get of its end."""
    match run.status:
        case RunStatus.SUCCEEDED if run.output is None:
            return NOTHING
        case RunStatus.SUCCEEDED:
            assert run.output is not None
            return Outcome(StepStatus.SUCCEEDED, run.output, run.output_meta)
        case RunStatus.FAILED:
            return failed_with("error", "ChildFailedError", f"run {run.id} has failed", run.error)
        case _:
            return failed_with("canceled", "ChildCanceledError", f"run {run.id} was canceled", run.error)


# ---- waits ----


def close(moment: Moment, run: RunOnRecord, name: str) -> OpenWait:
    wait = run.waits.pop(name)
    if wait.kind is StepKind.CHILD and (target := moment.run(wait.target)):
        target.awaiters.discard((run.id, name))
    return wait


def resolve(moment: Moment, run: RunOnRecord | None, name: str, outcome: Outcome) -> None:
    """Gives an open wait its outcome; the run goes on, and the others of its race are withdrawn."""
    if run is None or run.has_ended or name not in run.waits:
        return
    wait = close(moment, run, name)
    run.resolutions += 1
    step = run.steps[name]
    step.status, step.value, step.meta = outcome.status, outcome.value, outcome.meta
    step.is_final, step.attempt, step.finished_at = True, run.attempt, moment.now
    step.resolved = run.resolutions
    if outcome.target is not None:
        step.target = outcome.target
    if wait.group:
        withdraw_group(moment, run, wait.group)
    was_solo = run.is_solo
    progress(run)
    # By which it stands in its lane.
    run.is_solo = was_solo and run.status is RunStatus.QUEUED
    if run.is_parked:
        run.is_woken = True
    if run.status is RunStatus.WAITING:
        run.placed_at = moment.now
        enter_lane(moment, run)


def withdraw_group(moment: Moment, run: RunOnRecord, group: str) -> None:
    """In the order in which the store keeps them, which chance decides when there are many."""
    rivals = [name for name, wait in run.waits.items() if wait.group == group]
    while rivals:
        name = moment.luck.pick("withdraw", rivals)
        rivals.remove(name)
        withdraw(moment, run, name)


def withdraw(moment: Moment, run: RunOnRecord, name: str) -> None:
    wait = close(moment, run, name)
    step = run.steps[name]
    step.status, step.finished_at = StepStatus.WITHDRAWN, moment.now
    release(moment, run, wait)


def release(moment: Moment, run: RunOnRecord, wait: OpenWait) -> None:
    """A run ends that was started for a wait that is over without it."""
    child = moment.run(wait.target) if wait.kind is StepKind.CHILD else None
    if child and child.parent == run.id:
        cancel_unneeded(moment, child.id)


def cancel_unneeded(moment: Moment, run_id: str) -> None:
    if moment.is_full:
        moment.put_off("cancel", run_id)
        return
    run = moment.run(run_id)
    if run is None or run.has_ended or run.cancel_requested_at is not None or run.awaiters:
        return
    moment.count_effect()
    run.cancel_requested_at, run.cancel_reason = moment.now, NOBODY_NEEDS_IT
    if not run.token:
        finish(moment, run, RunStatus.CANCELED)


# ---- after the end of a run ----


def withdraw_waits(moment: Moment, run: RunOnRecord) -> None:
    left = list(run.waits)
    for _ in range(MAX_EFFECTS):
        if moment.is_full or not left:
            break
        name = moment.luck.pick(f"withdraw {run.id}", left)
        left.remove(name)
        moment.count_effect()
        withdraw(moment, run, name)
    if run.waits:
        moment.put_off("withdraw", run.id)


def close_children(moment: Moment, run: RunOnRecord) -> None:
    while run.children and not moment.is_full:
        child = moment.luck.pick(f"close {run.id}", sorted(run.children))
        run.children.remove(child)
        cancel_unneeded(moment, child)
    if run.children:
        moment.put_off("close", run.id)


def wake_awaiters(moment: Moment, run_id: str) -> None:
    run = moment.run(run_id)
    if run is None or not run.has_ended:
        return
    outcome = outcome_of(run)
    while run.awaiters and not moment.is_full:
        parent, step = moment.luck.pick(f"wake {run_id}", sorted(run.awaiters))
        run.awaiters.remove((parent, step))
        moment.count_effect(len(outcome.value))
        resolve(moment, moment.run(parent), step, outcome)
    if run.awaiters:
        moment.put_off("wake", run_id)
