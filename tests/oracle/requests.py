"""Requests that fit the world as it is, mostly, for runs that exist and under current tokens; and some that do not.

Everything is drawn from a seeded source, so that a failure replays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from redflow_server.domain.events import REPEATED_WITHIN_MS, NewEvent
from redflow_server.domain.failures import Failure, FailureKind, RetryHint
from redflow_server.domain.ids import counted
from redflow_server.domain.leases import Lane, Stamp, StepRecord
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import InputMismatch, NewRun
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.domain.tokens import new_token
from redflow_server.domain.waits import ChildWait, EventWait, TimerWait, TokenWait, Wait
from redflow_server.store.keys import split_channel
from tests.oracle import names
from tests.oracle.bench import Bench
from tests.oracle.model.world import RunOnRecord

T = TypeVar("T")
WAIT_KINDS = (StepKind.TIMER, StepKind.EVENT, StepKind.CHILD, StepKind.TOKEN)


class Requests:
    """What is asked for next."""

    def __init__(self, bench: Bench, random: Random) -> None:
        self._bench = bench
        self._random = random

    def one_of(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def now_and_then(self, one_in: int) -> bool:
        return self._random.randrange(one_in) == 0

    def coin(self) -> bool:
        return self.now_and_then(2)

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Different ones."""
        return self._random.sample(options, min(len(options), self.number(least, most)))

    # ---- payloads ----

    def small_payload(self) -> Payload:
        return Payload(self.one_of(names.SMALL_BYTES), self.one_of(names.CONTENT_TYPES), self.one_of(names.METADATA))

    def payload(self) -> Payload:
        return Payload(self.one_of(names.BIG_BYTES)) if self.now_and_then(30) else self.small_payload()

    def maybe_payload(self) -> Payload | None:
        return None if self.now_and_then(3) else self.payload()

    # ---- runs ----

    def runs(self, is_wanted: Callable[[RunOnRecord], bool] = lambda run: True) -> list[RunOnRecord]:
        return [run for run in self._bench.world.runs.values() if is_wanted(run)]

    def run_id(self) -> str:
        """Of a run that exists, mostly."""
        known = list(self._bench.world.runs)
        return "run_none" if not known or self.now_and_then(12) else self.one_of(known)

    def new_run_id(self) -> str:
        number = self._bench.next_number()
        return self.one_of((f"run_{number}", f"R{number}", f"{number}-_".ljust(64, "z")))

    def start(self) -> NewRun:
        """A run that is new, or was started before."""
        has_key = self.now_and_then(3)
        return NewRun(
            run_id=self.run_id() if self.now_and_then(10) else self.new_run_id(),
            workflow=self.one_of(names.WORKFLOWS),
            input=self.payload(),
            queue=self.one_of((None, *names.QUEUES)),
            priority=self.one_of(names.PRIORITIES),
            max_attempts=self.one_of((None, 1, 2, 3)),
            available_at_ms=self._available_at() if self.now_and_then(4) else None,
            idempotency_key=self.one_of(names.KEYS) if has_key else None,
            idempotency_ttl_ms=self.one_of(names.WINDOWS_MS),
            on_input_mismatch=self.one_of(tuple(InputMismatch)),
            is_typed=self.coin(),
        )

    def _available_at(self) -> int:
        return self._bench.now + self.one_of((-1000, 0, 1, 1000, 60_000))

    # ---- leases ----

    def lease(self, is_wanted: Callable[[RunOnRecord], bool] = lambda run: True) -> tuple[RunOnRecord | None, str, str]:
        """A run, its id, and a token: mostly the current one, else an old one or one that somebody made up."""
        leased = self.runs(lambda run: bool(run.token) and is_wanted(run)) or self.runs(lambda run: bool(run.token))
        if leased and not self.now_and_then(10):
            run = self.one_of(leased)
            return run, run.id, run.token
        # Also of a run that was purged, as its worker does not know.
        any_runs = [] if self.now_and_then(4) else self.runs()
        run = self.one_of(any_runs) if any_runs else None
        run_id = run.id if run else "run_none"
        made_up = f"{run_id}.{'m' * 15}"
        return run, run_id, self.one_of((run.ended_token or made_up, made_up)) if run else made_up

    def steps_recorded(self, run: RunOnRecord | None) -> int:
        """How many steps the worker takes to be on record; too many when an item was lost."""
        done = run.steps_done if run else 0
        return self.one_of((0, 0, done, done, done, done + 1)) if self.now_and_then(3) else done

    def stamp(self) -> Stamp:
        return Stamp(self.one_of(names.SESSIONS), self.one_of((1, 2)), self.one_of(names.GATEWAYS))

    def lanes(self) -> tuple[Lane, ...]:
        """Mostly such that have runs."""
        filled = list(self._bench.world.lane_changes)
        if filled and not self.now_and_then(10):
            kind = self.one_of(filled).is_solo
            return tuple(self.some([lane for lane in filled if lane.is_solo is kind], 1, 3))
        return (Lane(self.one_of(names.QUEUES), self.one_of(names.WORKFLOWS)),)

    # ---- failures and steps ----

    def failure(self) -> Failure:
        return Failure(
            type=self.one_of(("ValueError", "Ünï\0")),
            message=self.one_of(("", "no luck", 'sla/sh "quoted" \\ \n☃')),
            kind=self.one_of((FailureKind.ERROR, FailureKind.ERROR, *FailureKind)),
            hint=self.one_of((None, None, *RetryHint)),
            next_retry_delay_ms=self.one_of((None, None, 0, 1, 60_000)),
            details=self.one_of((None, None, Payload(b"\xff\x00"))),
        )

    def function_step(self, run: RunOnRecord | None) -> StepRecord:
        has_failed = self.now_and_then(3)
        return StepRecord(
            name=self.step_name(StepKind.FUNCTION, run),
            seq=self.number(0, 3),
            kind=StepKind.FUNCTION,
            status=StepStatus.FAILED if has_failed else StepStatus.SUCCEEDED,
            output=None if has_failed else self.maybe_payload(),
            failure=self.failure() if has_failed else None,
            is_final=self.coin(),
            elapsed_ms=self.one_of((0, 5)),
            tries=self.one_of((0, 3)),
        )

    def step_name(self, kind: StepKind, run: RunOnRecord | None) -> str:
        """Mostly one that only steps of this kind have."""
        known = list(run.steps) if run else []
        if known and self.now_and_then(4):
            return self.one_of(known)
        return f"{kind}{self.one_of(names.ENDS)}"

    def final_steps(self, run: RunOnRecord | None) -> tuple[StepRecord, ...]:
        return tuple(self.function_step(run) for _ in range(self.one_of((0, 0, 0, 1, 2))))

    # ---- waits ----

    def waits(self, run: RunOnRecord | None, most: int = 3) -> tuple[Wait, ...]:
        """Of different steps."""
        found: dict[str, Wait] = {}
        for _ in range(self.number(1, most)):
            wait = self.wait(run, self.one_of(WAIT_KINDS))
            found.setdefault(wait.name, wait)
        return tuple(found.values())

    def wait(self, run: RunOnRecord | None, kind: StepKind) -> Wait:
        name = self.step_name(kind, run)
        if run and name in run.steps and run.steps[name].kind in WAIT_KINDS:
            kind = run.steps[name].kind
        timeout_ms = self.one_of((None, None, 0, 1, 1000, 60_000))
        if kind is StepKind.TIMER and timeout_ms is None:
            target = self._target(kind, run, name, until_ms=self._bench.now + self.one_of((-1, 0, 1, 1000, 60_000)))
        else:
            target = self._target(kind, run, name)
        return Wait(name, self.number(0, 3), target, self.one_of(names.GROUPS), timeout_ms)

    def _target(
        self, kind: StepKind, run: RunOnRecord | None, name: str, until_ms: int | None = None
    ) -> TimerWait | EventWait | ChildWait | TokenWait:
        match kind:
            case StepKind.TIMER:
                return TimerWait(until_ms)
            case StepKind.EVENT:
                return EventWait(self.one_of(names.EVENTS), self.one_of(names.EVENT_KEYS))
            case StepKind.CHILD:
                return ChildWait(self.child(run))
            case _:
                return TokenWait(new_token(run.id if run else "run_none", name)[:-15] + "t" * 15)

    def child(self, run: RunOnRecord | None) -> NewRun:
        """A run that a step names: one that exists, one that is to be found, or a new one."""
        if self.now_and_then(3):
            return NewRun(self.run_id(), "", Payload(b""))
        parent = run.id if run else "run_none"
        keys = (None, None, f"stepwf:{counted(parent)}:{self.one_of(('1:s', 'x'))}", *names.KEYS)
        return NewRun(
            run_id=self.new_run_id(),
            workflow=self.one_of(names.WORKFLOWS),
            input=self.small_payload(),
            queue=self.one_of((None, *names.QUEUES, *names.QUEUES)),
            priority=self.one_of(names.PRIORITIES),
            max_attempts=self.one_of((None, 2)),
            idempotency_key=self.one_of(keys),
            idempotency_ttl_ms=self.one_of(names.WINDOWS_MS),
        )

    # ---- events ----

    def event(self) -> NewEvent:
        """A new one, or one that was emitted before."""
        if self._bench.events and self.now_and_then(6):
            return self.one_of(self._bench.events)
        name, key = self._channel()
        event = NewEvent(
            event_id=f"evt_{self._bench.next_number()}",
            name=name,
            payload=self.payload(),
            idempotency_key=self.one_of(("", "", "", *names.KEYS)),
            idempotency_ttl_ms=self.one_of((1, 60_000, REPEATED_WITHIN_MS)),
            available_at_ms=self.one_of((None, None, None, self._bench.now, self._bench.now + 1000)),
            key=key,
        )
        self._bench.events.append(event)
        return event

    def _channel(self) -> tuple[str, str | None]:
        """Name and key of an event; of one that somebody waits for, where somebody does."""
        waits = (wait for run in self.runs(lambda run: not run.has_ended) for wait in run.waits.values())
        awaited = [split_channel(wait.target) for wait in waits if wait.kind is StepKind.EVENT]
        if awaited and self.coin():
            return self.one_of(awaited)
        return self.one_of(names.EVENTS), self.one_of(names.EVENT_KEYS)
