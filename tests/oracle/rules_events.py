"""Rules about what comes from outside of runs: events, completed tokens, cron schedules."""

from __future__ import annotations

from random import Random

from redflow_server.domain.ids import run_id_for
from redflow_server.domain.schedules import DueSchedule, Occurrence
from redflow_server.domain.states import StepKind
from redflow_server.domain.tokens import Completion, TokenStep
from redflow_server.store import codec_registry
from tests.oracle import names
from tests.oracle.bench import Call, a_call
from tests.oracle.requests import Requests
from tests.oracle.table import Table, move


def has_tokens(table: Table) -> bool:
    return any(step.kind is StepKind.TOKEN for run in table.bench.world.runs.values() for step in run.steps.values())


class EventRules(Table):
    """Events and the waits for them, tokens, schedules."""

    @move(weight=3)
    def emit_event(self, random: Random) -> None:
        self.act_together(random, lambda requests: a_call("emit_event", requests.event()))

    @move(weight=6, when=lambda table: table.bench.world.fan_outs)
    def fan_out(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("fan_out"))

    @move(weight=6, when=lambda table: table.bench.world.deliveries)
    def deliver_events(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("deliver_events"))

    @move(when=lambda table: table.bench.world.memory)
    def forget_events(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("forget_events"))

    @move(weight=5, when=has_tokens)
    def complete_token(self, random: Random) -> None:
        self.act_together(random, self._complete_token)

    def _complete_token(self, requests: Requests) -> Call:
        tokens = [
            (run.id, name, step.target)
            for run in requests.runs()
            for name, step in run.steps.items()
            if step.kind is StepKind.TOKEN
        ]
        run_id, name, token = requests.one_of(tokens)
        has_failed = requests.now_and_then(4)
        completion = Completion(
            token="tok_made.up" if requests.now_and_then(10) else token,
            step=TokenStep(run_id, name),
            output=None if has_failed else requests.maybe_payload(),
            failure=requests.failure() if has_failed else None,
        )
        return a_call("complete_token", completion)

    # ---- cron schedules ----

    @move(when=lambda table: table.bench.world.crons)
    def due_schedules(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("due_schedules", requests.one_of(names.LIMITS)))

    @move(when=lambda table: any(cron.next_at for cron in table.bench.world.crons.values()))
    def fire_schedule(self, random: Random) -> None:
        self.act(random, self._fire_schedule)

    def _due(self, requests: Requests) -> DueSchedule:
        """As it stands, mostly; else as it has stood."""
        name = requests.one_of(sorted(self.bench.world.crons))
        stored = self.bench.world.crons[name]
        at = stored.next_at or self.bench.now
        document = b"{}" if requests.now_and_then(10) else stored.document
        return DueSchedule(name, at - 1 if requests.now_and_then(10) else at, document)

    def _fire_schedule(self, requests: Requests) -> Call:
        due = self._due(requests)
        workflow, cron = codec_registry.decode_schedule(self.bench.world.crons[due.schedule_id].document)
        # Also back in time, as by a clock that was set back.
        next_at_ms = due.occurrence_ms + requests.one_of((1, 60_000, -60_000))
        occurrence = Occurrence(
            due,
            workflow,
            cron,
            run_id_for(due.schedule_id, str(due.occurrence_ms)),
            next_at_ms,
            requests.one_of((0, 0, 3)),
        )
        return a_call("fire_schedule", occurrence)

    @move(when=lambda table: table.bench.world.crons)
    def stall_schedule(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("stall_schedule", self._due(requests), "unreadable ☃"))

    @move()
    def read_schedules(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("read_schedules", list(names.WORKFLOWS)))
