"""Scenes with more of something than is dealt with at once, or at all: awaiters, children, subscribers, losses.

An example may begin with one; the random moves after it go on with what was left over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from redflow_server.domain.events import NewEvent
from redflow_server.domain.leases import (
    Claim,
    ClosePolicy,
    CompleteRun,
    Lane,
    RecordStep,
    Release,
    ReleaseReason,
    Stamp,
    StartStep,
    StepRecord,
    Suspend,
)
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import Registration, WorkflowDefinition
from redflow_server.domain.runs import NewRun
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.domain.waits import ChildWait, EventWait, TimerWait, Wait
from tests.oracle.bench import Bench, Call, a_call

CROWD: Final = 103
TOGETHER: Final = 50
STAMP: Final = Stamp("session-1", 1, "gateway-1")
SECRET: Final = "crowd".rjust(15, "_")
EVENT: Final = "crowded"


def _all(bench: Bench, calls: Sequence[Call]) -> None:
    """In some script calls of many items each."""
    for at in range(0, len(calls), TOGETHER):
        bench.play(*calls[at : at + TOGETHER])


def _run(number: int, queue: str = "crowd") -> NewRun:
    return NewRun(f"crowd_{number}", "w", Payload(b"{}"), queue=queue)


def _leased(bench: Bench, count: int) -> list[str]:
    """So many leased runs; their ids."""
    runs = [_run(number) for number in range(count)]
    _all(bench, [a_call("enqueue", run) for run in runs])
    bench.play(a_call("claim", Claim(STAMP, (Lane("crowd", "w"),), count, SECRET, 600_000)))
    return [run.run_id for run in runs]


def _suspended(bench: Bench, run_ids: list[str], waits: tuple[Wait, ...]) -> None:
    _all(bench, [a_call("suspend", Suspend(run_id, f"{run_id}.{SECRET}", 0, waits)) for run_id in run_ids])


def awaiters(bench: Bench) -> None:
    """Many runs wait for one, which ends."""
    [child, *parents] = _leased(bench, CROWD)
    _suspended(bench, parents, (Wait("child", 1, ChildWait(NewRun(child, "", Payload(b"")))),))
    bench.play(a_call("complete", CompleteRun(child, f"{child}.{SECRET}", 0, Payload(b"\x00"))))


def few_awaiters_of_much(bench: Bench) -> None:
    """Some runs wait for one, which ends with so much that one script does not tell all of them."""
    [child, *parents] = _leased(bench, 7)
    _suspended(bench, parents, (Wait("child", 1, ChildWait(NewRun(child, "", Payload(b"")))),))
    bench.play(a_call("complete", CompleteRun(child, f"{child}.{SECRET}", 0, Payload(b"\xff" * (1024 * 1024)))))


def waits_for_an_event(bench: Bench) -> None:
    """Many runs wait for an event, which comes."""
    _suspended(bench, _leased(bench, CROWD), (Wait("event", 1, EventWait(EVENT, None)),))
    bench.play(a_call("emit_event", NewEvent("evt_crowd", EVENT, Payload(b"\x00"))))


def waits_of_one(bench: Bench) -> None:
    """A run that waits for much is canceled."""
    [run_id] = _leased(bench, 1)
    waits = tuple(Wait(f"timer {number}", 1, TimerWait(bench.now + 60_000 + number)) for number in range(CROWD))
    _suspended(bench, [run_id], waits)
    bench.play(a_call("cancel", run_id, "too much", "request-1"))


def children_of_one(bench: Bench) -> None:
    """A run that has started many ends, and they are to end with it."""
    [run_id] = _leased(bench, 1)
    token = f"{run_id}.{SECRET}"
    starts = [
        StartStep(run_id, token, 0, f"start {number}", 1, _run(1000 + number), ClosePolicy.CANCEL)
        for number in range(CROWD)
    ]
    _all(bench, [a_call("step_start", start) for start in starts])
    bench.play(a_call("complete", CompleteRun(run_id, token, 0, None)))


def awaited_children_of_one(bench: Bench) -> None:
    """A run that waits for many that it has started, against each other, is canceled."""
    [run_id] = _leased(bench, 1)
    waits = tuple(Wait(f"child {number}", 1, ChildWait(_run(1000 + number)), group="g") for number in range(CROWD))
    _suspended(bench, [run_id], waits)
    bench.play(a_call("cancel", run_id, "too much", "request-1"))


def subscribers(bench: Bench) -> None:
    """An event starts many runs."""
    definitions = tuple(
        WorkflowDefinition(f"listener {number}", "digest-1", queue="crowd", event_names=(EVENT,))
        for number in range(CROWD)
    )
    bench.play(a_call("register", Registration("crowd", "build-1", definitions)))
    event = NewEvent("evt_crowd", EVENT, Payload(b"\x00"), idempotency_ttl_ms=60_000)
    bench.events.append(event)
    bench.play(a_call("emit_event", event))


def subscribers_again(bench: Bench) -> None:
    """It comes once more when all have started, and its window has passed."""
    subscribers(bench)
    finish_crowd(bench)
    bench.now += 60_000
    bench.play(a_call("emit_event", bench.events[-1]))


def many_events(bench: Bench) -> None:
    """A channel gets more events than are remembered of one."""
    events = [NewEvent(f"evt_crowd_{number}", EVENT, Payload(b"\x00")) for number in range(CROWD)]
    _all(bench, [a_call("emit_event", event) for event in events])


def many_builds(bench: Bench) -> None:
    """An owner comes with more builds than are remembered."""
    for number in range(CROWD):
        bench.now += 1
        definitions = (WorkflowDefinition("w", f"digest-{number}"),)
        bench.play(a_call("register", Registration("crowd", f"build-{number}", definitions)))


def _delivered(bench: Bench, run_id: str, number: int) -> str:
    """Delivers a run once more, alone if that is how it stands; its token."""
    secret = f"{number:_>15}"
    lane = bench.world.runs[run_id].lane
    bench.play(a_call("claim", Claim(STAMP, (lane,), 1, secret, 600_000)))
    return f"{run_id}.{secret}"


def deliveries_without_progress(bench: Bench) -> None:
    """A run is delivered so often without any progress that it fails of it."""
    run = _run(0)
    bench.play(a_call("enqueue", run))
    number = 0
    while not bench.world.runs[run.run_id].has_ended:
        number += 1
        reason = ReleaseReason.OVERLOADED if number % 10 == 0 else ReleaseReason.SHUTDOWN
        token = _delivered(bench, run.run_id, number)
        bench.play(a_call("release", Release(run.run_id, token, reason)))


def losses_in_all(bench: Bench) -> None:
    """A run makes some progress between losses, until there were too many in all; then one more that has few."""
    run, other = _run(0), _run(1)
    for new in (run, other):
        bench.play(a_call("enqueue", new))
    number = 0
    while not bench.world.runs[run.run_id].has_ended:
        number += 1
        token = _delivered(bench, run.run_id, number)
        if number % 3 == 0:
            step = StepRecord(
                f"step {number}", 1, StepKind.FUNCTION, StepStatus.SUCCEEDED, None, None, is_final=True, elapsed_ms=0
            )
            bench.play(a_call("record_step", RecordStep(run.run_id, token, 0, step)))
        bench.play(a_call("release", Release(run.run_id, token, ReleaseReason.VANISHED, STAMP)))
    for _ in range(3):
        number += 1
        token = _delivered(bench, other.run_id, number)
        bench.play(a_call("release", Release(other.run_id, token, ReleaseReason.VANISHED, STAMP)))


def finish_crowd(bench: Bench) -> None:
    """What was left over is gone on with, until nothing is."""
    world = bench.world
    while world.outbox or world.deliveries or world.fan_outs:
        if world.outbox:
            bench.play(a_call("apply_outbox", TOGETHER))
        if world.deliveries:
            bench.play(a_call("deliver_events"))
        if world.fan_outs:
            bench.play(a_call("fan_out"))
        world = bench.world


CROWDS: Final[tuple[Callable[[Bench], None], ...]] = (
    *(waits_for_an_event, subscribers, awaiters, few_awaiters_of_much, waits_of_one, children_of_one),
    *(awaited_children_of_one, subscribers_again, losses_in_all, deliveries_without_progress),
    *(many_events, many_builds),
)
