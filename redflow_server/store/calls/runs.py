"""Scripts about runs as clients see them."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence

from redflow_server.domain.errors import IdempotencyKeyReused, LeaseLost, RunNotFound, WorkflowNotFound
from redflow_server.domain.runs import NewRun, Run, RunPage, RunQuery, StartedRun, Step
from redflow_server.domain.states import RunStatus
from redflow_server.store import codec, replies
from redflow_server.store.calls.scripted import Scripted
from redflow_server.store.wire import Argument


class RunScripts(Scripted):
    """Starting, reading and canceling runs."""

    def enqueue(self, run: NewRun, waiter: str = "") -> Future[StartedRun]:
        """Starts a run, or answers the one its key names; of the end of a new one the gateway `waiter` is told. Raises
        WorkflowNotFound, IdempotencyKeyReused.
        """
        arguments: tuple[Argument, ...] = (
            *(self._now, run.run_id, run.workflow, run.queue or "", run.max_attempts or "", run.priority),
            *(int(run.is_typed), run.input.data, codec.encode_meta(run.input), run.input.digest),
            "" if run.available_at_ms is None else run.available_at_ms,
            *(run.idempotency_key or "", run.idempotency_ttl_ms, run.on_input_mismatch, waiter),
        )

        def read(reply: codec.Reply) -> StartedRun:
            match codec.text(reply[0]):
                case "created":
                    return StartedRun(run.run_id, was_created=True)
                case "repeated":
                    return StartedRun(run.run_id, was_created=True, is_repeat=True)
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
            return codec.decode_run(run_id, *reply)

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
