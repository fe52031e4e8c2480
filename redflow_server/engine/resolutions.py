"""Outcomes of waits, on their way to the worker that has the run in memory.

A parked handler hears of one only when it has a slot again: whoever waits for a slot comes before every claim, and one
that gets none within a second goes back to its lane. What is lost on the way is told again with every heartbeat.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from redflow_server.domain.leases import Resolution, WaitOver
from redflow_server.domain.runs import Step
from redflow_server.domain.session import ItemAnswer, ItemStatus
from redflow_server.domain.states import StepStatus
from redflow_server.engine.send_queue import SendQueue
from redflow_server.engine.slots import HeldRun, Slots
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry

VALUE_BYTES: Final = 64 * 1024
SLOT_WAIT_S: Final = 1.0


@dataclass(slots=True)
class Woken:
    """A lease whose handler may go on: since when, the steps whose waits are over or lost, what is known of their
    outcomes, and what the worker is to hear if it has asked itself.
    """

    since: float
    steps: dict[str, Step | None] = field(default_factory=dict)
    answer: ItemAnswer | None = None


class Resolutions:
    """Of one session."""

    def __init__(
        self, store: Store, slots: Slots, send_queue: SendQueue, telemetry: Telemetry, on_room: Callable[[], None]
    ) -> None:
        self._store = store
        self._slots = slots
        self._send_queue = send_queue
        self._telemetry = telemetry
        self._on_room = on_room
        self._woken: dict[str, Woken] = {}
        self._is_awake = False

    def __len__(self) -> int:
        """How many leases have something to hear."""
        return len(self._woken)

    def tell(self, lease_token: str, names: Iterable[str]) -> None:
        """These waits of a run are over, or not in the store any more."""
        woken = self._woken_one(lease_token)
        for name in names:
            woken.steps.setdefault(name)
        self._wake()

    def hear(self, over: WaitOver) -> None:
        """A wait of a run is over."""
        self._woken_one(over.lease_token).steps[over.step_name] = over.step
        self._wake()

    def _wake(self) -> None:
        if not self._is_awake:
            # What resolves together, such as children that end in one script, is told together.
            self._is_awake = True
            asyncio.get_running_loop().call_soon(self.give_slots)

    def answer(self, lease_token: str, answer: ItemAnswer) -> None:
        """The worker has asked for a run that it keeps parked, and is answered when its handler has a slot."""
        self._woken_one(lease_token).answer = answer

    def _woken_one(self, lease_token: str) -> Woken:
        return self._woken.setdefault(lease_token, Woken(time.monotonic()))

    def give_slots(self) -> None:
        """Lets those go on that need no slot, or for whom there is one."""
        self._is_awake = False
        for token, woken in list(self._woken.items()):
            held = self._slots.held.get(token)
            if held is None:
                self.forget(token)
            elif not held.suspensions:  # else their answers say whether the handler needs a slot
                self._give_slot(token, held, woken)

    def _give_slot(self, token: str, held: HeldRun, woken: Woken) -> None:
        parked_at = None
        if held.is_parked:
            if held.open_waits:
                # Of the others it has heard before it was parked.
                woken.steps = {name: step for name, step in woken.steps.items() if name in held.open_waits}
            if woken.steps or woken.answer is not None:
                if not self._slots.room:
                    return
                self._slots.unpark(token)
                parked_at = held.items
        del self._woken[token]
        if woken.answer is not None:
            self._send_queue.answer(woken.answer)
            parked_at = None
        if not woken.steps:
            return
        if all(woken.steps.values()) and not held.unanswered_items:
            self._send(token, parked_at, woken.steps)
        else:
            # Also when all is known: what the worker has asked before is answered before.
            reading = self._store.read_steps(held.run_id, VALUE_BYTES, sorted(woken.steps), token)
            reading.add_done_callback(partial(self._were_read, token, parked_at, woken.steps))

    def without_slot(self) -> list[str]:
        """The leases whose handlers could have gone on for a second, and have got no slot."""
        since = time.monotonic() - SLOT_WAIT_S
        return [
            token
            for token, woken in self._woken.items()
            if woken.since < since and self._slots.is_parked(token) and not self._slots.held[token].suspensions
        ]

    def forget(self, lease_token: str) -> None:
        """The lease is over."""
        woken = self._woken.pop(lease_token, None)
        if woken is not None and woken.answer is not None:
            self._send_queue.answer(ItemAnswer(woken.answer.request_id, ItemStatus.LEASE_LOST, "LEASE_LOST"))

    def _were_read(
        self,
        token: str,
        parked_at: int | None,
        wanted: Mapping[str, Step | None],
        reading: asyncio.Future[tuple[Step, ...]],
    ) -> None:
        if reading.cancelled():
            return
        if reading.exception() is not None:
            # The next heartbeat asks again.
            self._telemetry.watch("reading waits", reading)
            self._park_again(token, parked_at)
            return
        self._send(token, parked_at, dict.fromkeys(wanted) | {step.name: step for step in reading.result()})

    def _send(self, token: str, parked_at: int | None, steps: Mapping[str, Step | None]) -> None:
        """Tells the worker of these; one without a step is lost."""
        there = sorted((step for step in steps.values() if step is not None), key=lambda step: step.resolved_seq)
        over = [Resolution(token, step.name, step) for step in there if step.status is not StepStatus.WAITING]
        said = (*over, *(Resolution(token, name, None) for name, step in sorted(steps.items()) if step is None))
        for resolution in said:
            self._send_queue.resolve(resolution)
        if not said:
            self._park_again(token, parked_at)
        elif (held := self._slots.held.get(token)) is not None:
            held.open_waits.difference_update(resolution.step_name for resolution in said)

    def _park_again(self, token: str, parked_at: int | None) -> None:
        """There is nothing that the handler could go on with, and its slot is free again; unless the worker has said
        something of it meanwhile.
        """
        held = self._slots.held.get(token)
        if held is not None and held.items == parked_at:
            self._slots.park(token)
            self._on_room()
