"""The items of a session: what a worker wants done, applied to the store and answered one by one.

An item that the store could not take holds back the later ones of its run: the worker sends it again, and nothing of
the run may pass it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from redflow_server.domain.errors import Refusal, StoreFull, Unavailable
from redflow_server.domain.leases import (
    AbortRun,
    BeginWaits,
    CompleteRun,
    EmitStep,
    EndFailing,
    FailAttempt,
    LeaseEnded,
    Outcome,
    RecordStep,
    Release,
    ReleaseReason,
    StartStep,
    StepRecorded,
    Suspend,
    Suspended,
)
from redflow_server.domain.runs import NewRun
from redflow_server.domain.session import Effect, Item, ItemAnswer, ItemStatus, RefusedItem
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.domain.waits import ChildWait
from redflow_server.engine.resolutions import Resolutions
from redflow_server.engine.send_queue import SendQueue
from redflow_server.engine.slots import HeldRun, Slots
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry

BLOCKED_S: Final = 10.0
FULL_DELAY_MS: Final = 5000
STARTS_RUNS: Final = (BeginWaits, EmitStep, StartStep, Suspend)
WAITS: Final = (BeginWaits, Suspend)
FAULT_DELAY_MS: Final = 5000

STATUS_OF: Final = {
    Outcome.OK: ItemStatus.OK,
    Outcome.DUPLICATE: ItemStatus.DUPLICATE,
    Outcome.CONFLICT: ItemStatus.CONFLICT,
    Outcome.RESOLVED: ItemStatus.RESOLVED,
    Outcome.PARKED: ItemStatus.PARKED,
    Outcome.RUN_FAILURE_HANDLER: ItemStatus.RUN_FAILURE_HANDLER,
    Outcome.LEASE_LOST: ItemStatus.LEASE_LOST,
    Outcome.MOVED: ItemStatus.MOVED,
    Outcome.STEPS_MISSING: ItemStatus.STEPS_MISSING,
    Outcome.NON_DETERMINISTIC: ItemStatus.INVALID,
    Outcome.TOO_MANY_STEPS: ItemStatus.INVALID,
    Outcome.NOT_ALLOWED: ItemStatus.INVALID,
}


Applied = asyncio.Future[StepRecorded] | asyncio.Future[LeaseEnded] | asyncio.Future[Suspended]


class Items:
    """What became of the items of one session."""

    def __init__(
        self,
        *,
        store: Store,
        slots: Slots,
        resolutions: Resolutions,
        send_queue: SendQueue,
        telemetry: Telemetry,
        on_room: Callable[[], None],
        on_start: Callable[[str, str | None], None],
    ) -> None:
        self._store = store
        self._slots = slots
        self._resolutions = resolutions
        self._send_queue = send_queue
        self._telemetry = telemetry
        self._on_room = on_room
        self._on_start = on_start
        self._blocked: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def take(self, item: Item | RefusedItem) -> None:
        """Applies an item; its answer goes to the send queue."""
        if isinstance(item, RefusedItem):
            self._send_queue.answer(ItemAnswer(item.request_id, item.status, item.reason, item.message))
            return
        token = item.effect.lease_token
        is_suspension = isinstance(item.effect, Suspend)
        self._slots.receive(token)
        if not is_suspension:
            self._slots.unpark(token)  # its handler is at work
        if self._is_held_behind(token, item.request_id):
            self._answer_unavailable(item.request_id, "an earlier item of the run has not been answered")
            return
        held = self._slots.held.get(token)
        if held is not None:
            held.items += 1
            held.unanswered_items += 1
            held.suspensions += is_suspension
            if isinstance(item.effect, WAITS):
                held.open_waits.update(wait.name for wait in item.effect.waits)
        for run in _runs_started(item.effect):
            self._on_start(run.workflow, run.queue)
        self._apply(item.effect).add_done_callback(partial(self._answered, item, held))

    def _apply(self, effect: Effect) -> Applied:
        match effect:
            case RecordStep():
                return self._store.record_step(effect)
            case BeginWaits():
                return self._store.step_wait(effect)
            case StartStep():
                return self._store.step_start(effect)
            case EmitStep():
                return self._store.step_emit(effect)
            case Suspend():
                return self._store.suspend(effect)
            case EndFailing():
                return self._store.end_failing(effect)
            case CompleteRun():
                return self._store.complete(effect)
            case FailAttempt():
                return self._store.fail(effect)
            case AbortRun():
                return self._store.abort(effect)
            case Release():
                return self._store.release(effect)

    def _is_held_behind(self, token: str, request_id: int) -> bool:
        """Whether an earlier item of the run is still to come again: a later one must not pass it."""
        blocker, until = self._blocked.get(token, (request_id, 0.0))
        if blocker == request_id or until < time.monotonic():
            self._blocked.pop(token, None)
            return False
        return True

    def _answered(self, item: Item, held: HeldRun | None, future: Applied) -> None:
        if held is not None:
            held.unanswered_items -= 1
            held.suspensions -= isinstance(item.effect, Suspend)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._item_failed(item, error)
            return
        answer = future.result()
        token = item.effect.lease_token
        if isinstance(answer, LeaseEnded):
            self._lease_ended(item, answer)
        elif isinstance(answer, Suspended):
            self._waits_answered(item, answer)
        else:
            stored = (answer.stored,) if answer.stored else ()
            has_effect = isinstance(item.effect, (EmitStep, StartStep))
            if self._slots.is_solo(token) and _is_progress(item.effect, answer):
                self._slots.allow_others(token)
                self._on_room()
            self._send_queue.answer(
                ItemAnswer(
                    item.request_id,
                    STATUS_OF[answer.outcome],
                    reason=_reason(answer.outcome),
                    message=_message(answer.outcome, answer.step_name),
                    cancel_requested=answer.cancel_requested,
                    conflicting=() if has_effect else stored,
                    resolutions=stored if has_effect else answer.rivals_over,
                )
            )
        if answer.outcome is Outcome.LEASE_LOST:
            self._slots.drop(token)
            self._on_room()

    def _waits_answered(self, item: Item, answer: Suspended) -> None:
        token, status = item.effect.lease_token, STATUS_OF[answer.outcome]
        held = self._slots.held.get(token)
        if held is not None:
            over = [step.name for step in answer.resolutions if step.status is not StepStatus.WAITING]
            held.open_waits.difference_update(over)
        if answer.status is not None:
            # The lease is over; to a repeat it is answered as it was.
            self._slots.drop(token)
            status = ItemStatus.CANCELED if answer.status is RunStatus.CANCELED else ItemStatus.SUSPENDED
        elif answer.outcome is Outcome.PARKED:
            self._slots.park(token)
        elif answer.outcome is not Outcome.RESOLVED:
            self._slots.unpark(token)
        said = ItemAnswer(
            item.request_id,
            status,
            _reason(answer.outcome),
            _message(answer.outcome, answer.step_name),
            cancel_requested=answer.cancel_requested,
            resolutions=answer.resolutions,
        )
        if self._slots.is_parked(token) and answer.outcome is Outcome.RESOLVED:
            self._resolutions.answer(token, said)
        else:
            self._send_queue.answer(said)
        if isinstance(item.effect, Suspend):
            # After the answer: outcomes that have come meanwhile.
            self._on_room()

    def _lease_ended(self, item: Item, answer: LeaseEnded) -> None:
        status = STATUS_OF[answer.outcome]
        if answer.outcome in (Outcome.OK, Outcome.DUPLICATE):
            self._slots.drop(item.effect.lease_token)
            self._on_room()
            if answer.status is RunStatus.CANCELED:
                status = ItemStatus.CANCELED
        said = ItemAnswer(
            item.request_id,
            status,
            _reason(answer.outcome),
            _message(answer.outcome, answer.step_name),
            conflicting=answer.conflicts,
        )
        if status is ItemStatus.OK:
            self._send_queue.answer_in_time(said)
        else:
            self._send_queue.answer(said)

    def _block(self, item: Item) -> None:
        now = time.monotonic()
        # Of runs that have gone elsewhere nothing comes again. The oldest stand first.
        while self._blocked and next(iter(self._blocked.values()))[1] < now:
            self._blocked.popitem(last=False)
        self._blocked.setdefault(item.effect.lease_token, (item.request_id, now + BLOCKED_S))

    def _item_failed(self, item: Item, error: BaseException) -> None:
        if isinstance(error, (Unavailable, StoreFull)):
            # It comes again, and what came after it for the run waits until then.
            self._block(item)
        if isinstance(error, Unavailable):
            self._answer_unavailable(item.request_id, str(error))
        elif isinstance(error, StoreFull) and isinstance(item.effect, STARTS_RUNS):
            self._hand_back(item, error)
        elif isinstance(error, Refusal):
            self._send_queue.answer(ItemAnswer(item.request_id, ItemStatus.UNAVAILABLE, error.reason, str(error), 1000))
        else:
            fault_id = self._telemetry.fault("item", error)
            # A fault of ours must not end a user's run: the worker asks again.
            self._send_queue.answer(
                ItemAnswer(item.request_id, ItemStatus.UNAVAILABLE, "INTERNAL", f"fault {fault_id}", FAULT_DELAY_MS)
            )

    def _hand_back(self, item: Item, error: StoreFull) -> None:
        """There is no room for the run that this one would start. It goes on later, at no cost: its slot is for runs
        that end, which makes room.
        """
        effect = item.effect
        release = Release(effect.run_id, effect.lease_token, ReleaseReason.OVERLOADED, delay_ms=FULL_DELAY_MS)
        self._store.release(release).add_done_callback(partial(self._telemetry.watch, "release of a run without room"))
        self._slots.drop(effect.lease_token)
        self._send_queue.answer(ItemAnswer(item.request_id, ItemStatus.LEASE_LOST, error.reason, str(error)))
        self._on_room()

    def _answer_unavailable(self, request_id: int, message: str) -> None:
        delay_ms = Unavailable.retry_delay_ms
        self._send_queue.answer(
            ItemAnswer(request_id, ItemStatus.UNAVAILABLE, "STORE_UNAVAILABLE", message, retry_delay_ms=delay_ms)
        )


def _runs_started(effect: Effect) -> tuple[NewRun, ...]:
    """The runs that are to be started, but for those of the subscribers of an event, which nobody here knows."""
    match effect:
        case StartStep(start=start):
            return (start,)
        case BeginWaits(waits=waits) | Suspend(waits=waits):
            return tuple(wait.target.start for wait in waits if isinstance(wait.target, ChildWait))
        case _:
            return ()


def _is_progress(effect: Effect, answer: StepRecorded) -> bool:
    """Whether the store takes it as such, as far as the answer tells; the next heartbeat tells in any case."""
    step = effect.step if isinstance(effect, RecordStep) else answer.stored
    return answer.outcome is Outcome.OK and step is not None and step.status is StepStatus.SUCCEEDED


def _reason(outcome: Outcome) -> str:
    return "" if outcome is Outcome.OK else outcome.name


def _message(outcome: Outcome, step_name: str) -> str:
    step = f" {step_name!r}" if step_name else ""
    match outcome:
        case Outcome.NON_DETERMINISTIC:
            return f"step{step} is on record as another kind of step"
        case Outcome.TOO_MANY_STEPS:
            return f"the run has too many steps to record{step}"
        case Outcome.NOT_ALLOWED:
            return "this is not to be done while the failure handler of a run runs, or only then"
        case _:
            return ""
