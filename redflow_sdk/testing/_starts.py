"""Starting runs: new ones, those that a key names, and those that a step may not wait for."""

from __future__ import annotations

from functools import partial
from typing import Final

from redflow_sdk._messages import RunStart
from redflow_sdk.records import Failure
from redflow_sdk.testing._clock import milliseconds
from redflow_sdk.testing._ends import promote
from redflow_sdk.testing._world import DEFAULT_KEY_TTL_S, Holder, RunRecord, World

MAX_RUNS: Final = 1000


class EndlessPlay(RuntimeError):
    """What is played starts runs, 1,000 of them, or goes on, without end. The message says what to replace."""


def start_run(
    world: World,
    start: RunStart,
    holder: Holder | None,
    *,
    parent: RunRecord | None = None,
    available_ms: int | None = None,
) -> RunRecord:
    """A new run. Nobody executes one without a holder. Raises EndlessPlay."""
    if len(world.runs) >= MAX_RUNS:
        raise EndlessPlay(f"{MAX_RUNS} runs were started; what starts runs without end is to be replaced by children=")
    workflow = None if holder is None else holder.workflow
    run = RunRecord(
        id=f"run_{len(world.runs) + 1}",
        start=start,
        queue=start.queue or (workflow.queue if workflow else ""),
        max_attempts=start.max_attempts or (workflow.max_attempts if workflow else 1),
        holder=holder,
        created_ms=world.now_ms,
        number_of_last_event=world.last_event,
        parent=parent,
        available_ms=available_ms,
    )
    world.runs[run.id] = run
    if available_ms is not None and available_ms > world.now_ms:
        run.status = "scheduled"
        world.clock.at(available_ms, partial(promote, world, run))
    else:
        world.ready.append(run)
    return run


def named_run(world: World, run: RunRecord, step_name: str, start: RunStart) -> RunRecord | Failure:
    """The run that a step names: one of its key, or a new one; or why there is none."""
    key = (start.workflow, start.idempotency_key or "")
    found, until_ms = world.keys.get(key, (None, 0))
    if found is None or until_ms <= world.now_ms or not start.idempotency_key:
        holder = world.stand_ins.get((run.id, step_name)) or world.holders.get(start.workflow)
        if holder is None and start.queue is None:
            what = f"workflow {start.workflow} is not registered, and no queue was named"
            return Failure("UnknownWorkflowError", what, "unknown_workflow")
        found = start_run(world, start, holder, parent=run)
    if start.idempotency_key:
        ttl = DEFAULT_KEY_TTL_S if start.idempotency_ttl is None else start.idempotency_ttl
        world.keys[key] = (found, world.now_ms + milliseconds(ttl))
    return found


def run_to_await(world: World, run: RunRecord, step_name: str, start: RunStart) -> RunRecord | Failure:
    """The run that a step is to wait for: none that waits for the run itself, over however many others."""
    found = named_run(world, run, step_name, start)
    if isinstance(found, Failure) or found.has_ended or not _awaits(found, run):
        return found
    return Failure("AwaitCycleError", f"run {found.id} waits for the run that would wait for it", "await_cycle")


def _awaits(run: RunRecord, other: RunRecord) -> bool:
    ahead, seen = [run], {run.id}
    while ahead:
        one = ahead.pop()
        if one is other:
            return True
        for open_wait in one.waits.values():
            if open_wait.child is not None and open_wait.child.id not in seen:
                seen.add(open_wait.child.id)
                ahead.append(open_wait.child)
    return False
