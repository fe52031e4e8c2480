"""Rules about what workers do with the runs they hold."""

from __future__ import annotations

from random import Random

from redflow_server.domain.leases import (
    AbortRun,
    BeginWaits,
    Claim,
    ClosePolicy,
    CompleteRun,
    EmitStep,
    EndFailing,
    FailAttempt,
    LeaseToRenew,
    ListedLease,
    RecordStep,
    Release,
    ReleaseReason,
    StartStep,
    Suspend,
)
from redflow_server.domain.states import StepKind
from tests.oracle import names
from tests.oracle.bench import Call, a_call
from tests.oracle.requests import Requests
from tests.oracle.table import Table, move


def has_leases(table: Table) -> bool:
    return any(run.token for run in table.bench.world.runs.values())


def has_lanes(table: Table) -> bool:
    return bool(table.bench.world.lane_changes)


def has_failing(table: Table) -> bool:
    return any(run.token and run.is_failing for run in table.bench.world.runs.values())


class LeaseRules(Table):
    """Claiming, renewing, recording, ending."""

    @move(weight=8, when=has_lanes)
    def claim(self, random: Random) -> None:
        requests = self.requests(random)
        self.claims += 1
        secret = f"{self.claims:015}"
        lease_ms = requests.one_of(names.LEASE_TIMES_MS)
        claim = Claim(requests.stamp(), requests.lanes(), requests.one_of((1, 2, 10)), secret, lease_ms)
        if requests.now_and_then(30):
            self.bench.play_with_lost_answer(a_call("claim", claim))
        else:
            self.bench.play(a_call("claim", claim))

    @move(weight=3, when=has_leases)
    def renew(self, random: Random) -> None:
        self.act(random, self._renew)

    def _renew(self, requests: Requests) -> Call:
        leases = []
        for _ in range(requests.number(1, 3)):
            run, run_id, token = requests.lease()
            known = list(run.steps) if run else []
            waits = requests.some([*known, "none"], 0, 2)
            leases.append(LeaseToRenew(run_id, ListedLease(token, tuple(waits))))
        stamp = requests.stamp()
        held = [run.stamp for run in requests.runs(lambda run: run.stamp is not None)]
        if held and requests.coin():
            stamp = requests.one_of(held) or stamp
        return a_call("renew", stamp, leases, requests.one_of(names.LEASE_TIMES_MS), requests.one_of((0, 30_000)))

    @move(weight=4, when=has_leases)
    def record_step(self, random: Random) -> None:
        self.act_together(random, self._record_step)

    def _record_step(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease(lambda run: not run.is_failing)
        step = requests.function_step(run)
        others = [name for name in (*(run.steps if run else ()), "none") if name != step.name]
        rivals = requests.some(others, 0, 3)
        return a_call("record_step", RecordStep(run_id, token, requests.steps_recorded(run), step, tuple(rivals)))

    @move(weight=4, when=has_leases)
    def step_wait(self, random: Random) -> None:
        self.act_together(random, self._step_wait)

    def _step_wait(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease(lambda run: not run.is_failing)
        waits = requests.waits(run)
        return a_call("step_wait", BeginWaits(run_id, token, requests.steps_recorded(run), waits))

    @move(weight=5, when=has_leases)
    def suspend(self, random: Random) -> None:
        self.act_together(random, self._suspend)

    def _suspend(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease(lambda run: not run.is_failing)
        waits = () if requests.now_and_then(10) else requests.waits(run)
        parks = requests.coin()
        return a_call("suspend", Suspend(run_id, token, requests.steps_recorded(run), waits, parks))

    @move(weight=2, when=has_leases)
    def step_start(self, random: Random) -> None:
        self.act_together(random, self._step_start)

    def _step_start(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease(lambda run: not run.is_failing)
        name, policy = requests.step_name(StepKind.START, run), requests.one_of(tuple(ClosePolicy))
        start = StartStep(run_id, token, requests.steps_recorded(run), name, 1, requests.child(run), policy)
        return a_call("step_start", start)

    @move(weight=2, when=has_leases)
    def step_emit(self, random: Random) -> None:
        self.act_together(random, self._step_emit)

    def _step_emit(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease(lambda run: not run.is_failing)
        name, delay_ms = requests.step_name(StepKind.EMIT, run), requests.one_of((None, None, 0, 1000))
        emit = EmitStep(run_id, token, requests.steps_recorded(run), name, 1, requests.event(), delay_ms)
        return a_call("step_emit", emit)

    @move(weight=3, when=has_leases)
    def complete(self, random: Random) -> None:
        self.act_together(random, self._complete)

    def _complete(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease()
        output, steps = requests.maybe_payload(), requests.final_steps(run)
        return a_call("complete", CompleteRun(run_id, token, requests.steps_recorded(run), output, steps))

    @move(weight=3, when=has_leases)
    def fail(self, random: Random) -> None:
        self.act_together(random, self._fail)

    def _fail(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease(lambda run: run.handler_ms is not None)
        recorded, jitter = requests.steps_recorded(run), requests.one_of((0.0, 0.5, 0.999))
        steps = requests.final_steps(run)
        return a_call("fail", FailAttempt(run_id, token, recorded, requests.failure(), jitter, steps))

    @move(weight=6, when=has_failing)
    def end_failing(self, random: Random) -> None:
        self.act_together(random, self._end_failing)

    def _end_failing(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease(lambda run: run.is_failing)
        failure = requests.failure() if requests.coin() else None
        return a_call("end_failing", EndFailing(run_id, token, requests.steps_recorded(run), failure))

    @move(when=has_leases)
    def abort(self, random: Random) -> None:
        self.act_together(random, self._abort)

    def _abort(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease()
        abort = AbortRun(
            run_id,
            token,
            requests.steps_recorded(run),
            is_worker_stopped=requests.coin(),
            reason=requests.one_of(names.REASONS),
            failure=requests.failure(),
            final_steps=requests.final_steps(run),
        )
        return a_call("abort", abort)

    @move(weight=2, when=has_leases)
    def release(self, random: Random) -> None:
        self.act_together(random, self._release)

    def _release(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease()
        reason = requests.one_of((ReleaseReason.UNDELIVERED, *ReleaseReason))
        own = run.stamp if run else None
        by_gateway = reason in (ReleaseReason.UNDELIVERED, ReleaseReason.VANISHED) or requests.coin()
        stamp = (own if own and not requests.now_and_then(6) else requests.stamp()) if by_gateway else None
        delay_ms = requests.one_of(names.DELAYS_MS)
        release = Release(run_id, token, reason, stamp, delay_ms, requests.steps_recorded(run))
        return a_call("release", release)
