"""A worker that speaks to a session of the engine in values: no port, no messages, no SDK.

It reads its session's send queue at once and acknowledges what it is given, unless a test says otherwise.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from redflow_server.domain.leases import ClaimedRun, CompleteRun, Lane, Resolution, Stop
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import WorkflowDefinition
from redflow_server.domain.session import (
    Effect,
    GatewayMessage,
    Heartbeat,
    HeartbeatReply,
    HeldLease,
    Item,
    ItemAnswer,
    ItemStatus,
    LeaseState,
    OpenSession,
    Receipt,
    SdkInfo,
    SessionEnd,
    SessionOpened,
    WorkerMessage,
)
from redflow_server.engine.session import WorkerSession
from tests.builders import LANE, Changes, a_workflow
from tests.engine.parts import Engine

WITHIN_S: Final = 5.0
REQUEST_IDS: Final = itertools.count(1)
KEEP_THE_LEASE: Final = (ItemStatus.PARKED, ItemStatus.RESOLVED)


def an_opening(*lanes: Lane, **changes: Changes) -> OpenSession:
    """A worker of its own with one slot, that serves these lanes (`LANE` when none is given)."""
    served = lanes or (LANE,)
    opening = OpenSession(
        min_revision=1,
        max_revision=1,
        owner="owner-1",
        worker_name="worker",
        instance_id=secrets.token_hex(8),
        build_id="build-1",
        sdk=SdkInfo("test", "0", "python"),
        queues=(),
        workflows=definitions_of(served),
        slot_limit=1,
        max_receive_bytes=0,
        session_number=1,
    )
    return replace(opening, **changes)


def definitions_of(lanes: Iterable[Lane]) -> tuple[WorkflowDefinition, ...]:
    """A definition for each lane."""
    return tuple(a_workflow(name=lane.workflow, queue=lane.queue, digest=f"digest of {lane}") for lane in lanes)


class EngineWorker:
    """One worker and its session."""

    def __init__(self, engine: Engine, opening: OpenSession) -> None:
        self._engine = engine
        self.opening = opening
        self.acknowledges = True
        self.opened: SessionOpened | None = None
        self.assignments: list[ClaimedRun] = []
        self.answers: dict[int, ItemAnswer] = {}
        self.stops: list[Stop] = []
        self.resolutions: list[Resolution] = []
        self.replies: list[HeartbeatReply] = []
        self.order: list[str] = []
        """What came, in the order in which it came: the token of an assignment, `stop <token>`, `<status> <number>`
        for the answer to an item that asks to wait, `over <token> <step>`, `drained`, `end`.
        """
        self.end: SessionEnd | None = None
        self.held: dict[str, ClaimedRun] = {}
        self._sent: dict[int, str] = {}
        """What it works on, until that is answered for."""
        self.most_held = 0
        self.on_assignment: Callable[[ClaimedRun], None] | None = None
        self.on_message: Callable[[GatewayMessage], None] | None = None
        self._changed = asyncio.Event()
        self._sequence = 0
        self._taken = 0
        self._session: WorkerSession | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def session(self) -> WorkerSession:
        """Its session."""
        assert self._session is not None, "not open"
        return self._session

    async def open(self) -> EngineWorker:
        """Opens the session and reads it from now on."""
        self._session = await self._engine.sessions.open(self.opening)
        self.read_on()
        return self

    def read_on(self) -> None:
        """Reads what is said to it."""
        self._reading = asyncio.create_task(self._read(self.session), name="engine-worker")

    async def stop_reading(self) -> None:
        """What is said to it from now on waits."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._reading = None

    async def close(self) -> None:
        """The stream is gone."""
        await self.stop_reading()
        if self._session is not None:
            self._engine.sessions.close(self._session)

    # ---- saying ----

    def say(self, **parts: Any) -> None:  # Any: the parts of a message
        """Sends one message."""
        self.session.receive(WorkerMessage(**parts))

    def send(self, effect: Effect) -> int:
        """Sends an item; the number of its answer."""
        request_id = next(REQUEST_IDS)
        self._sent[request_id] = effect.lease_token
        self.say(items=(Item(request_id, effect),))
        return request_id

    async def do(self, effect: Effect) -> ItemAnswer:
        """Sends an item and returns its answer."""
        request_id = self.send(effect)
        return await self.answer_to(request_id)

    async def answer_to(self, request_id: int) -> ItemAnswer:
        """The answer to an item that was sent."""
        answer: ItemAnswer = await self.until(lambda: self.answers.get(request_id), f"no answer to item {request_id}")
        return answer

    async def complete(self, run: ClaimedRun) -> ItemAnswer:
        """The handler of the run has returned."""
        return await self.do(CompleteRun(run.run_id, run.lease_token, 0, Payload(b'"done"')))

    async def beat(self, *tokens: str, state: LeaseState = LeaseState.RUNNING) -> HeartbeatReply:
        """Sends a heartbeat that lists these leases, and returns its answer."""
        return await self.beat_with(*(HeldLease(token, state) for token in tokens))

    async def beat_with(self, *leases: HeldLease) -> HeartbeatReply:
        """The same for leases in different states."""
        self._sequence += 1
        sequence = self._sequence
        self.say(heartbeat=Heartbeat(sequence, leases))
        reply: HeartbeatReply = await self.until(
            lambda: next((reply for reply in self.replies if reply.sequence >= sequence), None),
            "no answer to a heartbeat",
        )
        return reply

    async def settled(self) -> None:
        """Returns when whatever was asked of the store before now, and what follows from it, has come: its answers keep
        their order.
        """
        for _ in range(3):
            await self._engine.store.due(0)
            await asyncio.sleep(0)

    # ---- hearing ----

    async def assignment(self, within: float = WITHIN_S) -> ClaimedRun:
        """The next assignment that was not yet asked for."""
        number = self._taken
        await self.until(lambda: len(self.assignments) > number, "no assignment", within)
        self._taken += 1
        return self.assignments[number]

    async def until(self, what: Callable[[], Any], saying: str, within: float = WITHIN_S) -> Any:  # Any: its value
        """The first truthy value of `what()`, looked at whenever something has come."""
        try:
            async with asyncio.timeout(within):
                while not (value := what()):
                    self._changed.clear()
                    await self._changed.wait()
                return value
        except TimeoutError:
            raise AssertionError(f"not within {within} s: {saying}"[:500]) from None

    async def _read(self, session: WorkerSession) -> None:
        while self.end is None:
            self._file(await session.send_queue.take())
            self._changed.set()

    def _file(self, message: GatewayMessage) -> None:
        self.opened = message.opened or self.opened
        if message.heartbeat_reply is not None:
            self.replies.append(message.heartbeat_reply)
        if self.on_message is not None:
            self.on_message(message)
        for answer in message.answers:
            self.answers[answer.request_id] = answer
            if answer.status in KEEP_THE_LEASE:
                self.order.append(f"{answer.status} {answer.request_id}")
            else:
                # Before the assignments of the message, for which that has made room.
                self.held.pop(self._sent.get(answer.request_id, ""), None)
        self.stops += message.stops
        self.order += [f"stop {stop.lease_token}" for stop in message.stops]
        self.resolutions += message.resolutions
        self.order += [f"over {over.lease_token} {over.step_name}" for over in message.resolutions]
        for run in message.assignments:
            self.assignments.append(run)
            self.order.append(run.lease_token)
            self.held[run.lease_token] = run
            if self.acknowledges:
                self.say(receipts=(Receipt(run.lease_token),))
            if self.on_assignment is not None:
                self.on_assignment(run)
        self.most_held = max(self.most_held, len(self.held))
        if message.is_drained:
            self.order.append("drained")
        if message.end is not None:
            self.order.append("end")
            self.end = message.end
