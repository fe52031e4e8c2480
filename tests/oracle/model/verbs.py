"""The verbs of the model by name, as the store has them: each takes the moment first, then what the store's takes."""

from __future__ import annotations

from typing import Final

from tests.oracle.model import events, leases, registry, runs, steps, sweeping, upkeep
from tests.oracle.model.world import Verb

VERBS: Final[dict[str, Verb]] = {
    verb.__name__: verb
    for verb in (
        *(runs.enqueue, runs.read_run, runs.read_steps, runs.list_runs, runs.cancel, runs.watch_run),
        *(leases.claim, leases.renew, leases.complete, leases.fail, leases.abort, leases.end_failing, leases.release),
        *(steps.record_step, steps.step_wait, steps.suspend, steps.step_start, steps.step_emit),
        *(events.emit_event, events.fan_out, events.deliver_events, events.forget_events, events.complete_token),
        *(events.due_schedules, events.fire_schedule, events.stall_schedule, events.read_schedules),
        *(registry.register, registry.assert_registry, registry.read_workflows, registry.list_workflows),
        *(registry.announce_sessions, registry.forget_session, registry.read_sessions),
        *(registry.claim_prefix, registry.try_write, registry.read_stats),
        *(upkeep.due, upkeep.promote, upkeep.reap, upkeep.fire_timers, upkeep.expire, upkeep.fail_unknown),
        *(upkeep.purge, upkeep.apply_outbox, sweeping.sweep),
    )
}
