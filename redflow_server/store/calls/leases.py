"""Scripts about what workers do with the runs they hold."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Sequence
from typing import Final

from redflow_server.domain.leases import (
    AbortRun,
    BeginWaits,
    Claim,
    Claimed,
    CompleteRun,
    EmitStep,
    EndFailing,
    FailAttempt,
    LeaseEnded,
    LeaseStanding,
    LeaseToRenew,
    RecordStep,
    Release,
    ReleaseReason,
    Stamp,
    StartStep,
    StepRecord,
    StepRecorded,
    Suspend,
    Suspended,
)
from redflow_server.domain.names import MAX_STEPS
from redflow_server.domain.runs import HandlerState
from redflow_server.domain.states import RunStatus
from redflow_server.domain.waits import ChildWait
from redflow_server.store import codec, replies
from redflow_server.store.calls.scripted import Scripted
from redflow_server.store.wire import Argument

CLAIM_BYTES: Final = 1024 * 1024
INLINE_STEPS: Final = 64
INLINE_STEP_BYTES: Final = 64 * 1024

COUNTS: Final = {
    ReleaseReason.UNDELIVERED: "undelivered",
    ReleaseReason.VANISHED: "loss",
    ReleaseReason.NOT_STARTED: "rejected",
    ReleaseReason.OVERLOADED: "rejected",
}
"""What a release means for the run's losses; every other one costs nothing, as long as there are not too many."""


class LeaseScripts(Scripted):
    """Claiming, renewing, recording, ending."""

    def claim(self, claim: Claim) -> Future[Claimed]:
        """Leases queued runs to a session. Never repeated: leases without a holder end by themselves, soon."""
        arguments: list[Argument] = [self._now, *_stamp(claim.stamp), claim.count, claim.lease_ms, claim.secret]
        arguments += [CLAIM_BYTES, INLINE_STEPS, INLINE_STEP_BYTES, "solo" if claim.is_solo else ""]
        for lane in claim.lanes:
            arguments += (lane.queue, lane.workflow)
        return self._pipeline.call("claim", arguments, lambda reply: replies.claimed(claim, reply))

    def renew(
        self, stamp: Stamp, leases: Sequence[LeaseToRenew], lease_ms: int, grace_ms: int
    ) -> Future[tuple[LeaseStanding, ...]]:
        """Renews leases, and moves those of earlier sessions of the worker to this one."""
        arguments: list[Argument] = [self._now, *_stamp(stamp), lease_ms, grace_ms]
        listed = [lease.listed for lease in leases]
        for lease in leases:
            waits = lease.listed.open_waits
            arguments += (lease.run_id, lease.listed.lease_token, len(waits), *waits)
        return self._pipeline.call("renew", arguments, lambda reply: replies.standings(listed, reply))

    def record_step(self, record: RecordStep) -> Future[StepRecorded]:
        """Records what a step did."""
        arguments: tuple[Argument, ...] = (
            *(self._now, record.run_id, record.lease_token, record.steps_recorded, MAX_STEPS),
            *codec.encode_step(record.step),
            *record.rivals,
        )
        name = record.step.name.encode()
        return self._pipeline.call(
            "record_step",
            arguments,
            lambda reply: replies.step_recorded(name, reply),
            run_id=record.run_id,
            payload_bytes=len(record.step.output.data) if record.step.output else 0,
        )

    def step_wait(self, command: BeginWaits) -> Future[Suspended]:
        """Begins waits of a run that goes on."""
        return self._wait("step_wait", command, ())

    def suspend(self, suspension: Suspend) -> Future[Suspended]:
        """Sets a run aside until one of its waits is over."""
        return self._wait("suspend", suspension, (int(suspension.parks),))

    def _wait(self, script: str, effect: BeginWaits | Suspend, how: tuple[Argument, ...]) -> Future[Suspended]:
        arguments: list[Argument] = [self._now, effect.run_id, effect.lease_token, effect.steps_recorded, MAX_STEPS]
        arguments += how
        size = 0
        for wait in effect.waits:
            arguments += codec.encode_wait(wait)
            size += len(wait.target.start.input.data) if isinstance(wait.target, ChildWait) else 0
        return self._pipeline.call(script, arguments, replies.suspended, run_id=effect.run_id, payload_bytes=size)

    def step_start(self, step: StartStep) -> Future[StepRecorded]:
        """Starts a run as a step of another one."""
        arguments: list[Argument] = [self._now, step.run_id, step.lease_token, step.steps_recorded, MAX_STEPS]
        arguments += (step.name, step.seq, step.close_policy, step.start.run_id, *codec.encode_start(step.start))
        return self._pipeline.call(
            "step_start",
            arguments,
            lambda reply: replies.effect_recorded(step.name.encode(), reply),
            run_id=step.run_id,
            payload_bytes=len(step.start.input.data),
        )

    def step_emit(self, step: EmitStep) -> Future[StepRecorded]:
        """Emits an event as a step of a run."""
        arguments: list[Argument] = [self._now, step.run_id, step.lease_token, step.steps_recorded, MAX_STEPS]
        delay = "" if step.delay_ms is None else step.delay_ms
        arguments += (step.name, step.seq, *codec.encode_event(step.event), delay)
        return self._pipeline.call(
            "step_emit",
            arguments,
            lambda reply: replies.effect_recorded(step.name.encode(), reply),
            run_id=step.run_id,
            payload_bytes=len(step.event.payload.data),
        )

    def end_failing(self, end: EndFailing) -> Future[LeaseEnded]:
        """Ends a run whose failure handler has run."""
        state = HandlerState.FAILED if end.failure else HandlerState.DONE
        failure = codec.encode_failure(end.failure) if end.failure else b""
        arguments: tuple[Argument, ...] = (self._now, end.run_id, end.lease_token, state, failure)
        return self._pipeline.call("end_failing", arguments, replies.lease_ended, run_id=end.run_id)

    def complete(self, end: CompleteRun) -> Future[LeaseEnded]:
        """Ends a run that returned."""
        output = end.output
        outcome: tuple[Argument, ...] = (
            output.data if output else b"",
            codec.encode_meta(output),
            int(output is not None),
        )
        return self._end_lease("complete", end, outcome, end.final_steps)

    def fail(self, end: FailAttempt) -> Future[LeaseEnded]:
        """Ends an attempt that raised."""
        failure = end.failure
        delay = "" if failure.next_retry_delay_ms is None else failure.next_retry_delay_ms
        outcome = (codec.encode_failure(failure), int(failure.may_be_retried), delay, repr(end.jitter))
        return self._end_lease("fail", end, outcome, end.final_steps)

    def abort(self, end: AbortRun) -> Future[LeaseEnded]:
        """Ends a run that its worker stopped."""
        wanted = RunStatus.CANCELED if end.is_worker_stopped else RunStatus.FAILED
        outcome = (wanted, end.reason, codec.encode_failure(end.failure))
        return self._end_lease("abort", end, outcome, end.final_steps)

    def _end_lease(
        self,
        script: str,
        end: CompleteRun | FailAttempt | AbortRun,
        outcome: Iterable[Argument],
        final_steps: Iterable[StepRecord],
    ) -> Future[LeaseEnded]:
        arguments: list[Argument] = [self._now, end.run_id, end.lease_token, end.steps_recorded, MAX_STEPS, *outcome]
        for step in final_steps:
            arguments += codec.encode_step(step)
        size = sum([len(argument) for argument in arguments if type(argument) is bytes])
        return self._pipeline.call(script, arguments, replies.lease_ended, run_id=end.run_id, payload_bytes=size)

    def release(self, release: Release) -> Future[LeaseEnded]:
        """Hands a lease back."""
        arguments: tuple[Argument, ...] = (
            *(self._now, release.run_id, release.lease_token),
            " ".join(map(str, _stamp(release.stamp))) if release.stamp else "",
            COUNTS.get(release.reason, ""),
            *(release.delay_ms, release.steps_recorded, self._max_losses),
        )
        return self._pipeline.call("release", arguments, replies.lease_ended, run_id=release.run_id)


def _stamp(stamp: Stamp) -> tuple[str, int, str]:
    return stamp.session_id, stamp.epoch, stamp.gateway_id
