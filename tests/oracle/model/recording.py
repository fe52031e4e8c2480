"""What stands of a run's steps: whether a lease is in force, what a step means beside those on record, how one is
written.
"""

from __future__ import annotations

from dataclasses import dataclass

from redflow_server.domain.leases import LeaseEnded, Outcome, StepRecord
from redflow_server.domain.names import MAX_STEPS
from redflow_server.domain.runs import Step
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.store import codec
from tests.oracle.model import views
from tests.oracle.model.moves import progress
from tests.oracle.model.world import Moment, RunOnRecord, StepOnRecord


@dataclass(frozen=True)
class Refused:
    """Why an item under a lease is refused; `said` is what the item that ended the lease was answered, or the step."""

    outcome: Outcome
    said: str = ""

    @property
    def status(self) -> RunStatus | None:
        return RunStatus(self.said) if self.outcome is Outcome.DUPLICATE else None

    @property
    def step_name(self) -> str:
        return "" if self.outcome is Outcome.DUPLICATE else self.said

    @property
    def as_lease_ended(self) -> LeaseEnded:
        return LeaseEnded(self.outcome, self.status, step_name=self.step_name)


def under_lease(moment: Moment, run_id: str, token: str) -> RunOnRecord | Refused:
    """The run, if the token is its current one."""
    run = moment.run(run_id)
    if run is not None and run.token == token:
        return run
    if run is not None and run.ended_token == token:
        return Refused(Outcome.DUPLICATE, run.ended_as)
    return Refused(Outcome.LEASE_LOST)


def judge(run: RunOnRecord, step: StepRecord, room: int = MAX_STEPS) -> Outcome:
    """OK when it is to be written. The first success is for ever; a name keeps its kind."""
    there = run.steps.get(step.name)
    if there is None:
        return Outcome.OK if len(run.steps) < room else Outcome.TOO_MANY_STEPS
    if there.kind is not step.kind:
        return Outcome.NON_DETERMINISTIC
    if there.status is StepStatus.WITHDRAWN:
        return Outcome.CONFLICT
    if there.status is not StepStatus.SUCCEEDED:
        return Outcome.OK
    _, value = codec.encode_outcome(step.output, step.failure)
    is_same = step.status is StepStatus.SUCCEEDED and there.value == value
    return Outcome.DUPLICATE if is_same else Outcome.CONFLICT


def write(moment: Moment, run: RunOnRecord, step: StepRecord, *, resolved: int = 0, target: str = "") -> None:
    meta, value = codec.encode_outcome(step.output, step.failure)
    if step.status is StepStatus.SUCCEEDED:
        progress(run)
    started_at, there = moment.now - step.elapsed_ms, run.steps.get(step.name)
    if there is not None and there.attempt == run.attempt and step.tries > 1:
        # With its first try in the attempt.
        started_at = there.started_at or started_at
    run.steps[step.name] = StepOnRecord(
        status=step.status,
        kind=step.kind,
        seq=step.seq,
        attempt=run.attempt,
        started_at=started_at,
        finished_at=moment.now,
        is_final=step.is_final,
        tries=step.tries,
        resolved=resolved,
        target=target,
        meta=meta,
        value=value,
    )


def judge_final(run: RunOnRecord, steps: tuple[StepRecord, ...]) -> Refused | None:
    """Whether the steps that come with a result make it impossible."""
    new = set[str]()
    for step in steps:
        outcome = judge(run, step, MAX_STEPS - len(new))
        if outcome in (Outcome.NON_DETERMINISTIC, Outcome.TOO_MANY_STEPS):
            return Refused(outcome, step.name)
        if step.name not in run.steps:
            new.add(step.name)
    return None


def write_final(moment: Moment, run: RunOnRecord, steps: tuple[StepRecord, ...]) -> tuple[Step, ...]:
    """Writes them in order; those that have another value on record."""
    conflicts = []
    for step in steps:
        outcome = judge(run, step)
        if outcome is Outcome.OK:
            write(moment, run, step)
        elif outcome is Outcome.CONFLICT:
            conflicts.append(views.step(step.name, run.steps[step.name], with_value=False))
    return tuple(conflicts)
