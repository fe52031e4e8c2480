"""Verbs about what comes from outside of runs: events, completed tokens, cron schedules."""

from __future__ import annotations

from collections.abc import Sequence

from redflow_server.domain.errors import NotWaiting, TokenNotFound
from redflow_server.domain.events import EmittedEvent, NewEvent
from redflow_server.domain.payloads import EMPTY_OBJECT
from redflow_server.domain.runs import NewRun
from redflow_server.domain.schedules import DueSchedule, DueSchedules, Occurrence, Schedule
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.domain.tokens import Completion
from redflow_server.store import codec, codec_registry
from redflow_server.store.replies import FannedOut
from tests.oracle.model import emission
from tests.oracle.model.effects import Outcome, resolve
from tests.oracle.model.places import earliest
from tests.oracle.model.starts import Origin, create, queue_for
from tests.oracle.model.world import Moment


def emit_event(moment: Moment, event: NewEvent) -> EmittedEvent:
    return emission.emit(moment, event, event.available_at_ms)


def fan_out(moment: Moment) -> FannedOut:
    world = moment.world
    if not world.fan_outs:
        return FannedOut(0, has_more=False)
    _, event_id = earliest(world.fan_outs)[0]
    emitted = world.emitted[event_id]
    rest = emitted.fan_out
    assert rest is not None
    workflows = rest.parts[rest.part - 1]
    for workflow in workflows:
        emission.start_subscriber(moment, event_id, workflow, rest, emitted.queues.get(workflow))
    rest.parts[rest.part - 1] = []
    rest.part += 1
    if rest.part > len(rest.parts):
        del world.fan_outs[event_id]
        emitted.fan_out, emitted.queues = None, {}
        emitted.expiry = moment.expiry(max(0, emitted.expires_at - moment.now))
    return FannedOut(len(workflows), bool(world.fan_outs))


def deliver_events(moment: Moment) -> bool:
    """The one whose next wait was registered first goes on."""
    world = moment.world
    if not world.deliveries:
        return False
    (number, channel), start = min(world.deliveries.items(), key=lambda one: (one[1], f"{one[0][0]} {one[0][1]}"))
    emission.deliver(moment, number, channel, start)
    emission.drop_surplus(moment, channel)
    return bool(world.deliveries)


def forget_events(moment: Moment) -> bool:
    return emission.forget_old(moment)


def complete_token(moment: Moment, completion: Completion) -> None:
    run, name = moment.run(completion.step.run_id), completion.step.step_name
    step = run.steps.get(name) if run else None
    if run is None or step is None or step.kind is not StepKind.TOKEN or step.target != completion.token:
        raise TokenNotFound
    meta, value = codec.encode_outcome(completion.output, completion.failure)
    status = StepStatus.FAILED if completion.failure else StepStatus.SUCCEEDED
    if step.status is StepStatus.WAITING and not run.has_ended:
        resolve(moment, run, name, Outcome(status, value, meta))
    elif (step.status, step.meta, step.value) != (status, meta, value):
        raise NotWaiting


# ---- cron schedules ----


def due_schedules(moment: Moment, limit: int) -> DueSchedules:
    crons = moment.world.crons
    planned = {name: cron.next_at for name, cron in crons.items() if cron.next_at is not None}
    due = [(at, name) for at, name in earliest(planned) if at <= moment.now][:limit]
    found = []
    for at, name in due:
        workflow, cron = codec_registry.decode_schedule(crons[name].document)
        found.append(DueSchedule(name, at, crons[name].document, workflow, cron))
    return DueSchedules(moment.now, tuple(found), min(planned.values(), default=None))


def fire_schedule(moment: Moment, occurrence: Occurrence) -> bool:
    """Starts the run once, and plans the next occurrence; nothing when the schedule has changed meanwhile."""
    world, due = moment.world, occurrence.due
    cron = world.crons.get(due.schedule_id)
    if cron is None or cron.document != due.document or cron.next_at != due.occurrence_ms:
        return False
    is_new = due.occurrence_ms > world.cron_last.get(due.schedule_id, -1)
    if is_new:
        start = NewRun(occurrence.run_id, occurrence.workflow, occurrence.cron.input or EMPTY_OBJECT)
        if moment.run(start.run_id) is None and queue_for(moment, start) is not None:
            create(moment, start, Origin())
        world.cron_last[due.schedule_id] = due.occurrence_ms
    cron.skipped += occurrence.skipped
    cron.next_at = occurrence.next_at_ms
    return is_new


def stall_schedule(moment: Moment, due: DueSchedule, problem: str) -> None:
    cron = moment.world.crons.get(due.schedule_id)
    if cron is not None and cron.next_at == due.occurrence_ms:
        cron.next_at, cron.problem = None, problem


def read_schedules(moment: Moment, workflows: Sequence[str]) -> tuple[Schedule, ...]:
    world, found = moment.world, []
    for name in workflows:
        for schedule_id in world.workflows[name].cron_ids if name in world.workflows else ():
            stored = world.crons[schedule_id]
            workflow, cron = codec_registry.decode_schedule(stored.document)
            last = world.cron_last.get(schedule_id)
            found.append(
                Schedule(schedule_id, workflow, cron, stored.next_at, last, stored.skipped, problem=stored.problem)
            )
    return tuple(found)
