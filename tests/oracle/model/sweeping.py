"""The verb that repairs. A world has no damage of its own: whoever damages Redis says what a sweep will find."""

from __future__ import annotations

from redflow_server.domain.states import RunStatus
from redflow_server.store.replies import Repair, Swept
from tests.oracle.damage import Damage
from tests.oracle.model.moves import note_filled
from tests.oracle.model.world import Moment


def sweep(moment: Moment, status: RunStatus, before_seq: int | None, limit: int, damage: Damage | None = None) -> Swept:
    """Looks at a page of the runs of a status, newest first."""
    matching = [run for run in moment.world.runs.values() if run.status is status]
    page = sorted((run for run in matching if before_seq is None or run.seq < before_seq), key=lambda run: -run.seq)[
        :limit
    ]
    if damage and damage.what == "entry":
        # Of a run that is not there: it is the last on the page, by its number.
        return Swept(None, (Repair(damage.run_id, damage.what),))
    repairs = tuple(Repair(run.id, damage.what) for run in page if damage and run.id == damage.run_id)
    if damage and repairs:
        _repair(moment, damage)
    return Swept(page[-1].seq if len(page) == limit else None, repairs)


def _repair(moment: Moment, damage: Damage) -> None:
    """Everything is as before, save what counts from now."""
    run = moment.world.runs[damage.run_id]
    match damage.what:
        case "lane":
            note_filled(moment, run)
        case "lease":
            run.lease_ends_at = moment.now
        case "deadline":
            run.look_again_at = None
        case "retention":
            run.purge_from = run.finished_at
        case "event wait":
            run.waits[damage.step].number = moment.world.event_seq = (moment.world.event_seq or 0) + 1
