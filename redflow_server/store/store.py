"""A typed method for each script, of the same name. Each returns a future; what it may raise is StoreUnavailable and
StoreFull beside the refusals it names. `now_ms` stands in for Redis' clock in tests.
"""

from __future__ import annotations

import hashlib
from asyncio import Future
from collections.abc import Iterable, Sequence
from typing import Final

from redflow_server.domain.errors import IdempotencyKeyReused, LeaseLost, RunNotFound, WorkflowNotFound
from redflow_server.domain.leases import (
    AbortRun,
    Claim,
    Claimed,
    CompleteRun,
    FailAttempt,
    Lane,
    LeaseEnded,
    LeaseStanding,
    RecordStep,
    Release,
    ReleaseReason,
    Stamp,
    StepRecord,
    StepRecorded,
)
from redflow_server.domain.names import MAX_STEPS
from redflow_server.domain.registry import Assertion, Registered, Registration, Workflow
from redflow_server.domain.runs import NewRun, Run, RunPage, RunQuery, StartedRun, Stats, Step
from redflow_server.domain.states import RunStatus
from redflow_server.domain.workers import Worker
from redflow_server.store import codec, replies
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.replies import Due, Passed, Purged, Reaped, Swept, Unknown
from redflow_server.store.wire import Argument

CLAIM_BYTES: Final = 1024 * 1024
INLINE_STEPS: Final = 64
INLINE_STEP_BYTES: Final = 64 * 1024
STALE_MS: Final = 30_000
FORMAT: Final = 1
"""Version of what the keys hold."""

COUNTS: Final = {ReleaseReason.UNDELIVERED: "undelivered", ReleaseReason.VANISHED: "loss"}
"""What a release means for the run's losses; every other one costs nothing."""


class Store:
    """The runs and the registry in Redis."""

    def __init__(self, pipeline: Pipeline, max_losses: int = 3, now_ms: int | None = None) -> None:
        self._pipeline = pipeline
        self._max_losses = max_losses
        self.now_ms = now_ms

    @property
    def _now(self) -> Argument:
        return "" if self.now_ms is None else self.now_ms

    # ---- starting and watching ----

    def enqueue(self, run: NewRun) -> Future[StartedRun]:
        """Starts a run, or answers the one its key names. Raises WorkflowNotFound, IdempotencyKeyReused."""
        digest = hashlib.sha256(run.input.data).hexdigest()[:22]
        arguments: tuple[Argument, ...] = (
            *(self._now, run.run_id, run.workflow, run.queue or "", run.max_attempts or "", run.priority),
            *(int(run.is_typed), run.input.data, codec.encode_meta(run.input), digest),
            "" if run.available_at_ms is None else run.available_at_ms,
            *(run.idempotency_key or "", run.idempotency_ttl_ms, run.on_input_mismatch),
        )

        def read(reply: codec.Reply) -> StartedRun:
            match codec.text(reply[0]):
                case "created":
                    return StartedRun(run.run_id, was_created=True)
                case "existing":
                    return StartedRun(codec.text(reply[1]), was_created=False, input_differs=reply[2] == 1)
                case "key_reused":
                    raise IdempotencyKeyReused(run_id=codec.text(reply[1]))
                case _:
                    raise WorkflowNotFound(
                        f"workflow {run.workflow!r} is not registered; register it or name a queue",
                        workflow=run.workflow,
                    )

        return self._pipeline.call("enqueue", arguments, read, run_id=run.run_id, payload_bytes=len(run.input.data))

    def read_run(self, run_id: str) -> Future[Run]:
        """A run with its payloads. Raises RunNotFound."""

        def read(reply: codec.Reply) -> Run:
            if not reply:
                raise RunNotFound(f"there is no run {run_id}", run_id=run_id)
            return codec.decode_run(run_id, reply[0], reply[1])

        return self._pipeline.call("read_run", (self._now, run_id), read, run_id=run_id)

    def read_steps(
        self,
        run_id: str,
        max_bytes: int,
        names: Sequence[str] = (),
        lease_token: str = "",
        *,
        max_value_bytes: int | None = None,
    ) -> Future[tuple[Step, ...]]:
        """The steps of a run, or those named, with values while they fit into `max_bytes`.

        Larger values than `max_value_bytes` are left out. Raises RunNotFound, and LeaseLost when a token is given that
        is not the current one.
        """
        limits = (max_bytes, max_bytes if max_value_bytes is None else max_value_bytes)

        def read(reply: codec.Reply) -> tuple[Step, ...]:
            if reply == b"missing":
                raise RunNotFound(f"there is no run {run_id}", run_id=run_id)
            if reply == b"lost":
                raise LeaseLost
            steps = [codec.decode_step(*entry) for entry in reply]
            return tuple(sorted(steps, key=lambda step: (step.seq, step.name)))

        arguments = (self._now, run_id, lease_token, *limits, *names)
        return self._pipeline.call("read_steps", arguments, read, run_id=run_id)

    def list_runs(self, query: RunQuery) -> Future[RunPage]:
        """A page of runs, newest first."""
        statuses = (query.status,) if query.status else tuple(RunStatus)
        before = "" if query.before_seq is None else query.before_seq
        arguments = (self._now, query.workflow or "", query.limit, query.offset, before, *statuses)
        return self._pipeline.call("list_runs", arguments, replies.run_page)

    def cancel(self, run_id: str, reason: str, request_id: str) -> Future[bool]:
        """Asks for a run to end as canceled; False when it had ended. Raises RunNotFound."""

        def read(reply: codec.Reply) -> bool:
            if reply == b"missing":
                raise RunNotFound(f"there is no run {run_id}", run_id=run_id)
            return bool(reply == b"accepted")

        return self._pipeline.call("cancel", (self._now, run_id, reason, request_id), read, run_id=run_id)

    def watch_run(self, run_id: str, gateway_id: str) -> Future[RunStatus | None]:
        """The run's status, None when there is no run; the gateway hears of the end of one that is open."""
        return self._pipeline.call("watch_run", (self._now, run_id, gateway_id), replies.status, run_id=run_id)

    # ---- leases ----

    def claim(self, claim: Claim) -> Future[Claimed]:
        """Leases queued runs to a session. Never repeated: leases without a holder end by themselves, soon."""
        arguments: list[Argument] = [self._now, *_stamp(claim.stamp), claim.count, claim.delivery_ms, claim.secret]
        arguments += [CLAIM_BYTES, INLINE_STEPS, INLINE_STEP_BYTES]
        for lane in claim.lanes:
            arguments += (lane.queue, lane.workflow)
        return self._pipeline.call("claim", arguments, lambda reply: replies.claimed(claim, reply))

    def renew(
        self, stamp: Stamp, tokens: Sequence[tuple[str, str]], lease_ms: int, grace_ms: int
    ) -> Future[tuple[LeaseStanding, ...]]:
        """Renews leases, given as (run id, token), and moves those of earlier sessions of the worker to this one."""
        arguments: list[Argument] = [self._now, *_stamp(stamp), lease_ms, grace_ms]
        for pair in tokens:
            arguments += pair
        return self._pipeline.call("renew", arguments, lambda reply: replies.standings(tokens, reply))

    def record_step(self, record: RecordStep) -> Future[StepRecorded]:
        """Records what a step did."""
        arguments: tuple[Argument, ...] = (
            *(self._now, record.run_id, record.lease_token, record.steps_recorded, MAX_STEPS),
            *codec.encode_step(record.step),
        )
        name = record.step.name.encode()
        return self._pipeline.call(
            "record_step",
            arguments,
            lambda reply: replies.step_recorded(name, reply),
            run_id=record.run_id,
            payload_bytes=len(record.step.output.data) if record.step.output else 0,
        )

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
        size = sum(len(argument) for argument in arguments[5:] if isinstance(argument, bytes))
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

    # ---- upkeep ----

    def due(self, lane_change: int) -> Future[Due]:
        """When the next thing of each kind is due, and the lanes that have filled since a change number."""
        return self._pipeline.call("due", (self._now, lane_change), replies.due)

    def promote(self, limit: int) -> Future[Passed]:
        """Moves scheduled runs that are due to their lanes."""
        return self._pipeline.call("promote", (self._now, limit), replies.passed)

    def reap(self, lease_ms: int, quiet_ms: int, limit: int) -> Future[Reaped]:
        """Takes expired leases away, unless nobody could have renewed for `quiet_ms`."""
        arguments = (self._now, lease_ms, quiet_ms, self._max_losses, limit)
        return self._pipeline.call("reap", arguments, lambda reply: Reaped(*reply))

    def expire(self, limit: int) -> Future[Passed]:
        """Ends runs whose start or run time-out has passed."""
        return self._pipeline.call("expire", (self._now, limit), replies.passed)

    def fail_unknown(self, lane: Lane, grace_ms: int, offset: int, limit: int) -> Future[Unknown]:
        """Fails queued runs of a workflow that nobody has registered, from one place in their lane on."""
        arguments = (self._now, lane.queue, lane.workflow, grace_ms, offset, limit)
        return self._pipeline.call("fail_unknown", arguments, lambda reply: Unknown(*reply))

    def purge(self, retention_ms: dict[RunStatus, int], limit: int) -> Future[Purged]:
        """Removes runs that ended longer ago than they are kept."""
        arguments: list[Argument] = [self._now, limit]
        for status, keep_ms in retention_ms.items():
            arguments += (status, keep_ms)
        return self._pipeline.call("purge", arguments, lambda reply: Purged(*reply))

    def sweep(self, status: RunStatus, before_seq: int | None, limit: int) -> Future[Swept]:
        """Repairs runs of a status that stand in no place."""
        before = "" if before_seq is None else before_seq
        return self._pipeline.call("sweep", (self._now, status, before, limit), replies.swept)

    # ---- registry and sessions ----

    def register(self, registration: Registration) -> Future[Registered]:
        """Registers the whole set of an owner's workflows."""
        arguments: list[Argument] = [self._now, registration.owner, registration.build_id, STALE_MS]
        for definition in registration.workflows:
            arguments += codec.encode_registration(definition)
        names = [definition.name for definition in registration.workflows]
        return self._pipeline.call("register", arguments, lambda reply: replies.registered(names, reply))

    def assert_registry(self, assertions: Iterable[Assertion]) -> Future[tuple[bool, ...]]:
        """Keeps definitions from going stale; True for each that has to be registered again."""
        arguments: list[Argument] = [self._now, STALE_MS]
        for one in assertions:
            arguments += (one.owner, one.build_id, one.name, one.digest)
        return self._pipeline.call(
            "assert_registry", arguments, lambda reply: tuple(answer == b"needed" for answer in reply)
        )

    def read_workflows(self, names: Sequence[str]) -> Future[tuple[Workflow | None, ...]]:
        """Registry entries by name; None for one that is not registered."""
        return self._pipeline.call("read_workflows", (self._now, *names), replies.workflows)

    def list_workflows(self) -> Future[tuple[str, ...]]:
        """The names of all registered workflows, in order."""
        return self._pipeline.call("list_workflows", (self._now,), lambda reply: tuple(sorted(map(codec.text, reply))))

    def announce_sessions(self, workers: Iterable[Worker], keep_ms: int) -> Future[int]:
        """Keeps the descriptions of live sessions for listings; how many there are of all gateways."""
        arguments: list[Argument] = [self._now, keep_ms]
        for worker in workers:
            arguments += (worker.session_id, codec.encode_worker(worker))
        return self._pipeline.call("announce_sessions", arguments, int)

    def forget_session(self, session_id: str) -> Future[None]:
        """Removes a session from the listings."""
        return self._pipeline.call("forget_session", (self._now, session_id), lambda _: None)

    def read_sessions(self) -> Future[tuple[Worker, ...]]:
        """The live sessions of all gateways."""
        return self._pipeline.call("read_sessions", (self._now,), lambda reply: tuple(map(codec.decode_worker, reply)))

    def claim_prefix(self) -> Future[None]:
        """Takes the prefix for this engine. Raises PrefixTaken."""
        return self._pipeline.call("claim_prefix", (self._now, FORMAT), replies.prefix_claimed)

    def read_stats(self) -> Future[Stats]:
        """Counts of runs and depths of lanes."""
        return self._pipeline.call("read_stats", (self._now, *RunStatus), replies.stats)


def _stamp(stamp: Stamp) -> tuple[str, int, str]:
    return stamp.session_id, stamp.epoch, stamp.gateway_id
