"""A gateway with a record of each run, for many runs at once: what they wait for happens by chance, from a seed.

It numbers the ends of waits, lets the first of a race withdraw the others, sets runs aside or has them parked, tells
workers of ends before and after its answers, and delivers runs again. What no worker may do it keeps as a fault.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.sdk.messages import (
    KIND_OF_STEP,
    answer,
    child_failed,
    emitted,
    ok,
    open_wait,
    parked,
    payload,
    resolution,
    resolved,
    started,
    suspended,
    timed_out,
    value_of,
    wait_over,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

WAITING, WITHDRAWN = run_pb2.STEP_STATUS_WAITING, run_pb2.STEP_STATUS_WITHDRAWN
SUCCEEDED, FAILED = run_pb2.STEP_STATUS_SUCCEEDED, run_pb2.STEP_STATUS_FAILED
KIND_NAMES = {number: kind for kind, number in KIND_OF_STEP.items()}


@dataclass
class RunRecord:
    """A run as its gateway knows it. Without a token it is set aside, or has ended."""

    input: Any  # Any: a JSON document
    token: str = ""
    steps: dict[str, pb.StepSnapshot] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    """The races of its open waits, or nothing."""
    deliveries: int = 0
    parkings: int = 0
    ends: int = 0
    output: Any = None  # Any: what the handler returns

    @property
    def finished(self) -> int:
        return sum(step.status in (SUCCEEDED, FAILED) for step in self.steps.values())

    def order(self, name: str) -> int:
        """Its place among those that have ended; it has one unless it was a function in no race."""
        return self.steps[name].resolved_seq


class RecordKeeper:
    """Answers items in the gateway's thread; what runs wait for happens on the loop of the test."""

    def __init__(self, gateway: ScriptedGateway, workflow: str, chance: random.Random, *, parks: bool) -> None:
        self._gateway = gateway
        self._workflow = workflow
        self._chance = chance
        self._parks = parks
        self._loop = asyncio.get_running_loop()
        self._lock = threading.RLock()
        self._handed_back: set[str] = set()
        self.runs: dict[str, RunRecord] = {}
        self.faults: list[str] = []

    def deliver(self, run_id: str) -> None:
        run = self.runs[run_id]
        run.deliveries += 1
        run.token = f"{run_id}.{run.deliveries}"
        steps = list(run.steps.values())
        self._gateway.assign(self._workflow, payload(run.input), token=run.token, run_id=run_id, steps=steps)

    def take(self, item: Item) -> pb.ItemResult:
        with self._lock:
            run_id = item.lease_token.partition(".")[0]
            run = self.runs[run_id]
            # A handler may end while its run is handed back; in one message its end comes first.
            if item.lease_token in self._handed_back:
                return answer(item, pb.ITEM_STATUS_LEASE_LOST)
            if isinstance(item, pb.LeaseRelease) and run.output is not None:
                return answer(item, pb.ITEM_STATUS_DUPLICATE)
            if item.lease_token != run.token:
                self.faults.append(f"{type(item).__name__} under a lease that is over: {item.lease_token}")
                return answer(item, pb.ITEM_STATUS_LEASE_LOST)
            if item.steps_recorded > run.finished:
                self.faults.append(f"{run.token} knows of {item.steps_recorded} steps, and there are {run.finished}")
            match item:
                case pb.StepReport():
                    return self._report(run, item)
                case pb.StepCommand():
                    return self._command(run_id, run, item)
                case pb.Suspension():
                    return self._suspend(run_id, run, item)
                case pb.LeaseRelease():
                    self._handed_back.add(item.lease_token)
                    self.deliver(run_id)
                case pb.RunResult():
                    run.output = value_of(item.output) if item.HasField("output") else str(item)
                    run.token = ""
            return ok(item)

    # ---- functions and effects ----

    def _report(self, run: RunRecord, item: pb.StepReport) -> pb.ItemResult:
        there = run.steps.get(item.step_name)
        if there is not None and (there.status == SUCCEEDED or there.final or there.tries + 1 != item.tries):
            self.faults.append(f"{item.step_name} is reported twice, as try {item.tries}")
        step = pb.StepSnapshot(
            step_name=item.step_name, step_seq=item.step_seq, step_kind=item.step_kind,
            status=item.status, attempt=1, final=item.final, tries=item.tries,
        )  # fmt: skip
        if item.HasField("failure"):
            step.failure.CopyFrom(item.failure)
        else:
            step.output.CopyFrom(item.output)
        if item.rivals and (item.status == SUCCEEDED or item.final):
            run.ends += 1
            step.resolved_seq = run.ends
        run.steps[item.step_name] = step
        if item.status == SUCCEEDED:
            self._withdraw(run, item.rivals)
        rivals = [run.steps[name] for name in item.rivals if name in run.steps]
        over = [rival for rival in rivals if rival.status in (SUCCEEDED, FAILED)]
        return answer(item, pb.ITEM_STATUS_OK, resolutions=over)

    def _command(self, run_id: str, run: RunRecord, item: pb.StepCommand) -> pb.ItemResult:
        if item.HasField("wait"):
            self._begin(run_id, run, item.wait.waits)
            known = [run.steps[wait.step_name] for wait in item.wait.waits]
            told = [step for step in known if step.status != WAITING or step.token]
            return resolved(item, *told) if told else ok(item)
        if item.step_name in run.steps:
            self.faults.append(f"{item.step_name} has its effect twice")
        made = emitted if item.HasField("emit_event") else started
        run.steps[item.step_name] = made(item.step_name, "run-8", seq=item.step_seq)
        return answer(item, pb.ITEM_STATUS_OK, resolutions=[run.steps[item.step_name]])

    # ---- waits ----

    def _begin(self, run_id: str, run: RunRecord, waits: Sequence[pb.Wait]) -> None:
        decided = {wait.group for wait in waits if wait.step_name in run.steps and wait.step_name not in run.groups}
        for wait in waits:
            name, kind = wait.step_name, wait.WhichOneof("wait")
            assert kind is not None
            if name in run.groups:
                run.groups[name] = run.groups[name] or wait.group
            elif name not in run.steps:
                token = f"token of {name}" if kind == "token" else ""
                run.steps[name] = open_wait(kind, name, seq=wait.step_seq, token=token)
                run.groups[name] = wait.group
                if wait.group and wait.group in decided:
                    self._withdraw(run, [name])
        self._something_happens(run_id)

    def _suspend(self, run_id: str, run: RunRecord, item: pb.Suspension) -> pb.ItemResult:
        if not item.waits:
            self.faults.append(f"{item.lease_token} waits for nothing")
        self._begin(run_id, run, item.waits)
        if self._chance.random() < 0.2:
            self._end_some(run)
        over = [run.steps[wait.step_name] for wait in item.waits if wait.step_name not in run.groups]
        if not over and run.finished > item.steps_recorded:
            over = [step for name, step in run.steps.items() if name not in run.groups]
        if over:
            return resolved(item, *over)
        if item.park and self._parks and self._chance.random() < 0.7:
            run.parkings += 1
            return parked(item)
        run.token = ""
        return suspended(item)

    def _something_happens(self, run_id: str) -> None:
        """Soon; it may be before the answer that is on its way."""
        delay = self._chance.choice((0, 0.005, 0.05, 0.1, 0.2))
        self._loop.call_soon_threadsafe(self._loop.call_later, delay, self._happen, run_id)

    def _happen(self, run_id: str) -> None:
        with self._lock:
            run = self.runs[run_id]
            ended = self._end_some(run)
            if run.groups:
                self._something_happens(run_id)
            if run.token:
                told = [resolution(run.token, run.steps[name]) for name in ended]
                self._gateway.send(wait_resolutions=told)
            elif ended and run.output is None:
                self.deliver(run_id)

    def _end_some(self, run: RunRecord) -> list[str]:
        """Some open waits are over, and withdraw their rivals."""
        chosen = self._chance.sample(sorted(run.groups), self._chance.randint(min(1, len(run.groups)), len(run.groups)))
        ended = []
        for name in chosen:
            if name in run.groups:
                self._end(run, name)
                ended.append(name)
        return ended

    def _end(self, run: RunRecord, name: str) -> None:
        run.ends += 1
        before, group = run.steps[name], run.groups.pop(name)
        kind = KIND_NAMES[before.step_kind]
        if name.startswith("lost"):
            step = child_failed(name)
            step.failure.message, step.resolved_seq = name, run.ends
        elif name.startswith("late"):
            step = timed_out(kind, name, number=run.ends)
        else:
            value = None if kind == "timer" else name
            step = wait_over(kind, name, value, number=run.ends, token=before.token)
        step.step_seq = before.step_seq
        run.steps[name] = step
        if group:
            self._withdraw(run, [rival for rival, its in run.groups.items() if its == group])

    def _withdraw(self, run: RunRecord, names: Sequence[str]) -> None:
        for name in names:
            if run.groups.pop(name, None) is not None:
                run.steps[name].status = WITHDRAWN
