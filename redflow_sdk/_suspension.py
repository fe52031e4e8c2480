"""The open waits of one delivery: notices when its handler can go on only by one of them, and has the run set aside.

That is so when no step is at work and the handler has come to rest: several turns of the loop have passed without a
step or wait that begins or ends, and none of the run's tasks waits for anything else. From then until the gateway has
answered, no step begins. A handler that is parked stays so, in memory, until a wait is over or its window is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from redflow_sdk._link import Link
from redflow_sdk._messages import (
    Answer,
    BeginWaits,
    Release,
    ReleaseReason,
    StepKind,
    StepSnapshot,
    StepState,
    Suspend,
    Verdict,
    Wait,
)
from redflow_sdk._open_waits import (
    OpenWait,
    OpenWaits,
    always,
    in_messages,
    new_with_rivals,
    room,
    too_large,
)
from redflow_sdk._parking import Parking, Waiting
from redflow_sdk._run_tasks import AnyTask, RunTasks, State
from redflow_sdk._step_log import StepLog
from redflow_sdk.errors import NonDeterministicError, NonRetriableError, SerializationError

log = logging.getLogger("redflow.worker")

TURNS: Final = 8
"""Turns of the loop in which tasks that are ready take their next step, and those that wait for them theirs."""
HELD_S: Final = 10.0
"""How long a task that does something else than wait for steps and waits keeps the run from coming to rest."""
LOOK_AGAIN_S: Final = 0.05


class RunSuspended(BaseException):
    """Ends a `def` handler whose run has been set aside. Nobody is to handle it, so it is no Exception."""


class Suspension:
    """What a handler waits for. On the worker's loop, but for `begin_step` and `end_step`."""

    def __init__(
        self,
        step_log: StepLog,
        link: Link,
        parking: Parking,
        on_lost: Callable[[], None],
        on_suspended: Callable[[], None],
    ) -> None:
        """The log tells how many steps are on record, and hears of those that newly are. One of the others is called
        when the run is no longer here.
        """
        self._log = step_log
        self._link = link
        self._parking = parking
        self._on_lost = on_lost
        self._on_suspended = on_suspended
        self._loop = asyncio.get_running_loop()
        self._tasks: RunTasks | None = None
        self._open = OpenWaits()
        # Handlers begin steps in threads, while the loop decides whether any is at work.
        self._lock = threading.Lock()
        self._at_work = 0
        self._starting = 0
        self._moves = 0
        self._held_since: float | None = None
        self._asking: asyncio.Future[Answer] | None = None
        self._is_overtaken = False
        """Whether a wait was over, or lost, while the question was under way whether the run is set aside."""
        self._window: asyncio.TimerHandle | None = None
        self._is_parked = False
        self._has_place = False
        self._goes_on = asyncio.Event()
        self._is_closed = False
        self.is_over = False
        """Whether the run has been set aside, or has ended: nothing more may be said for it."""

    def watching_tasks(self) -> RunTasks:
        """The caller is an `async def` handler; within this its tasks are looked at, too."""
        self._tasks = RunTasks()
        return self._tasks

    def watches(self, task: AnyTask) -> bool:
        """Whether a task is one of the handler's. In any thread."""
        return self._tasks is not None and self._tasks.has(task)

    def close(self) -> None:
        """The handler has ended. The tasks it has left behind wait for nothing any more."""
        self._is_closed = True
        self._unpark()
        self._goes_on.set()
        self._open.close()

    # ---- from steps ----

    @property
    def _is_undecided(self) -> bool:
        """Whether the run may be about to be set aside, and no step may begin."""
        return self._asking is not None or self._is_parked or self.is_over

    async def decided(self) -> None:
        """Returns when steps may begin. Raises CancelledError when none may any more."""
        while not self._is_closed and self._is_undecided:
            self._goes_on_by_itself()
            await self._goes_on.wait()
        if self._is_closed:
            # A handler that does not end must not keep its loop from turning.
            await asyncio.sleep(0)
            raise asyncio.CancelledError("the run has been set aside")

    def begin_step(self) -> bool:
        """A step is at work. False when none may begin before it is decided whether the run is set aside."""
        with self._lock:
            if self._is_undecided:
                return False
            self._at_work += 1
            return True

    def end_step(self) -> None:
        """It no longer is."""
        with self._lock:
            self._at_work -= 1
            self._moves += 1  # at once: a look that is on its way must not see the handler at rest
        if self._open:
            self._loop.call_soon_threadsafe(self._moved)

    # ---- waiting ----

    async def wait_for(self, wait: Wait, may_begin: Callable[[], bool] = always) -> StepSnapshot:
        """The outcome of a wait, which begins when it may. Raises NonDeterministicError, SerializationError when the
        gateway refuses it.
        """
        await self.decided()
        known = self._log.outcome_of(wait.name)
        if known is not None and not wait.group:
            return known
        # One that is open on record may have to be told which race it is in.
        over = self._open.add(wait, self._log.is_open(wait.name) and not wait.group, may_begin)
        self._moved()
        try:
            return await over
        finally:
            self._open.remove(wait.name, over)
            if not self._open:
                self._goes_on_by_itself()  # there is nothing left that could wake it
            self._go_on()

    def _moved(self) -> None:
        """The handler is not at rest yet."""
        with self._lock:
            self._moves += 1
        self._held_since = None
        self._look_soon()

    def _look_soon(self) -> None:
        if self._open and not self._is_closed:
            self._loop.call_soon(self._look, TURNS, self._moves)

    def _look(self, turns_left: int, moves: int) -> None:
        if moves != self._moves or not self._open or self._is_closed or self._is_undecided or self._starting:
            return
        if turns_left:
            self._loop.call_soon(self._look, turns_left - 1, moves)
            return
        waits = self._open.current()
        if not waits:
            return  # what is left is of a race that is decided, and ends with it
        refused = too_large(waits)
        if refused:
            _refuse(refused, SerializationError("the inputs of the runs in one race must be at most 2 MiB together"))
            return
        named = waits[: room(waits)]
        without_room = new_with_rivals(waits[len(named) :], waits)
        if without_room:
            self._begin(without_room)
            return
        with self._lock:
            if moves != self._moves:
                return
            is_at_work = self._at_work > 0
        if is_at_work or not self._has_come_to_rest():
            # The handler goes on by itself; what it waits for is to begin meanwhile.
            self._begin([open_wait for open_wait in waits if not open_wait.is_registered])
            return
        with self._lock:
            if moves == self._moves and not self._at_work:
                self._has_place = self._parking.take_place()
                self._ask(named, parks=self._has_place)

    def _has_come_to_rest(self) -> bool:
        """Whether every task of the run waits for a wait or another task, or has waited for something else too long."""
        if self._tasks is None:
            return True  # the one thread of a handler waits, since it has asked for a wait
        found = self._tasks.standing(self._open.futures())
        if found.state is State.AT_REST:
            return True
        now = self._loop.time()
        self._held_since = self._held_since or now
        if now - self._held_since >= HELD_S:
            log.warning(
                "run %s counts as waiting although %s is busy with something that is no step, which is cut short when "
                "the run is set aside, and begins again on replay; put it into a step",
                self._log.run_id,
                found.holder_name or "a task that never rests",
            )
            return True
        if found.state is State.MOVING:
            self._loop.call_soon(self._look, TURNS, self._moves)
            return False
        # Nothing tells when it goes on. Less and less often, for a look at thousands of tasks takes some time.
        pause_s = LOOK_AGAIN_S + (now - self._held_since) / 4
        self._loop.call_later(min(pause_s, HELD_S - (now - self._held_since)), self._look, 0, self._moves)
        return False

    def _begin(self, waits: Sequence[OpenWait]) -> None:
        """Registers waits. Until that is answered the run is not set aside: they may be refused."""
        for some in in_messages(waits):
            for open_wait in some:
                open_wait.is_registered = True
            self._starting += 1
            named = tuple(open_wait.wait for open_wait in some)
            begun = self._link.report(BeginWaits(self._log.token, self._log.recorded, named))
            begun.add_done_callback(partial(self._begun, some))

    def _begun(self, waits: Sequence[OpenWait], future: asyncio.Future[Answer]) -> None:
        self._starting -= 1
        if not future.cancelled():
            self._deal_with(future.result(), waits)
        self._moved()

    # ---- being set aside ----

    def _ask(self, waits: Sequence[OpenWait], parks: bool) -> None:
        self._goes_on.clear()
        self._is_overtaken = False
        for open_wait in waits:
            open_wait.is_registered = True
        named = tuple(open_wait.wait for open_wait in waits)
        self._asking = self._link.report(Suspend(self._log.token, self._log.recorded, named, parks))
        self._asking.add_done_callback(partial(self._was_answered, waits))

    def _goes_on_by_itself(self) -> None:
        """A parked handler wants to do something although no wait is over. Its slot may be another's by now."""
        if self._is_parked and self._asking is None and not self._is_closed:
            if self._log.stop_order is None:
                self._ask((), parks=True)
            else:
                self._unpark()  # it is on its way out, and takes no step

    def _was_answered(self, asked: Sequence[OpenWait], future: asyncio.Future[Answer]) -> None:
        verdict = None if future.cancelled() else future.result().verdict
        if verdict is Verdict.RESOLVED and self._is_to_be_replayed(future.result()):
            self._hand_back()
            return
        with self._lock:  # a step in a thread begins before all of it, or after
            self._asking = None
            if verdict is Verdict.PARKED and self._stands_still:
                self._park()
            else:
                self._unpark()
            if verdict is not None:
                self._deal_with(future.result(), asked)
        self._go_on()

    def _is_to_be_replayed(self, answer: Answer) -> bool:
        """Whether a delivery from the start would get further: it knows outcomes, and nothing of withdrawn waits."""
        is_replaying = self._parking.waiting is Waiting.REPLAY and not self._is_closed
        return is_replaying and any(step.is_finished for step in answer.resolutions)

    def _hand_back(self) -> None:
        """The run could go on in place, and is to be replayed instead."""
        self._asking = self._link.report(Release(self._log.token, self._log.recorded, ReleaseReason.NOT_STARTED))
        self._asking.add_done_callback(self._was_handed_back)

    def _was_handed_back(self, future: asyncio.Future[Answer]) -> None:
        with self._lock:
            self._asking = None
            if not future.cancelled() and future.result().verdict is Verdict.OK:
                self._set_aside()
            elif not future.cancelled():
                self._deal_with(future.result(), ())
        self._go_on()

    def _set_aside(self) -> None:
        self._is_closed = self.is_over = True
        self._on_suspended()

    @property
    def _stands_still(self) -> bool:
        """Whether the handler still waits as it did when the question was asked."""
        return len(self._open) > 0 and not self._is_overtaken and not self._is_closed

    def _go_on(self) -> None:
        """Lets begin what may, and looks whether the handler is at rest once more."""
        if self._asking is None and not self._is_parked:
            self._goes_on.set()
        self._moved()

    def _park(self) -> None:
        self._is_parked = True
        self._window = self._loop.call_later(self._parking.window_s, self.end_parking)

    def _unpark(self) -> None:
        self._is_parked = False
        if self._has_place:
            self._has_place = False
            self._parking.leave()
        if self._window is not None:
            self._window.cancel()
            self._window = None

    def end_parking(self) -> None:
        """The handler is not kept in memory any longer."""
        if self._is_parked and self._asking is None:
            waits = list(self._open)
            self._ask(waits[: room(waits)], parks=False)

    def resolved(self, steps: Iterable[StepSnapshot]) -> None:
        """Waits are over, or have been lost by the store. A parked handler goes on."""
        steps = tuple(steps)
        self._was_told(steps, self._open.tell(steps))

    def overtaken(self, rivals: Sequence[StepSnapshot]) -> None:
        """A function in a race has ended; these waits were over before, and no other."""
        self._was_told(rivals, self._open.settle(rivals))

    def _was_told(self, steps: Sequence[StepSnapshot], unclaimed: Sequence[StepSnapshot]) -> None:
        self._note(steps, unclaimed)
        if self._asking is not None:
            # The answer says the same, unless the gateway has given it before.
            self._is_overtaken = self._is_overtaken or len(unclaimed) < len(steps)
            return
        self._unpark()
        self._go_on()

    def _note(self, steps: Iterable[StepSnapshot], unclaimed: Iterable[StepSnapshot]) -> None:
        for step in steps:
            if step.is_finished:
                self._log.add(step.name)
            elif step.state is StepState.UNKNOWN:
                self._log.lose(step.name)
        for step in unclaimed:
            if step.is_finished and step.kind is not StepKind.FUNCTION:
                self._log.note(step)

    def _deal_with(self, answer: Answer, asked: Sequence[OpenWait]) -> None:
        match answer.verdict:
            case Verdict.SUSPENDED | Verdict.CANCELED | Verdict.DUPLICATE:
                # A duplicate under this token has ended its lease before.
                self._set_aside()
            case Verdict.LEASE_LOST | Verdict.MOVED:
                self._is_closed = True
                self._on_lost()
            case Verdict.TOO_LARGE:
                _refuse(asked, SerializationError(answer.message))
            case Verdict.INVALID:
                _refuse(asked, refusal_of(answer))
            case _:
                self._note(answer.resolutions, self._open.settle(answer.resolutions))
                for open_wait in asked:
                    open_wait.confirm()


def refusal_of(answer: Answer) -> NonRetriableError:
    """What a handler gets for an item that the gateway takes in no attempt."""
    return (NonDeterministicError if answer.reason == "NON_DETERMINISTIC" else NonRetriableError)(answer.message)


def _refuse(asked: Iterable[OpenWait], error: Exception) -> None:
    for open_wait in asked:
        open_wait.refuse(error)
