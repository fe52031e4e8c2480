"""A worker of which a test writes every message: the generated stubs on one stream, and nothing of the SDK.

It answers nothing by itself. `dial` opens the stream, `open` says the first message, `say` any other; what the gateway
says is kept in lists, and every wait has a deadline. `beat_on` sends heartbeats that list `held`, as a worker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable
from typing import Any, Final, TypeVar

import grpc

from redflow_sdk.proto.v1 import run_pb2, workflow_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_sdk.proto.worker.v1 import worker_pb2_grpc as stubs

T = TypeVar("T")

WITHIN_S: Final = 5.0
REVISION: Final = 1
NAMES: Final = itertools.count(1)
PROBES: Final = itertools.count(2**40)
FIELD_OF: Final = {
    pb.StepReport: "step_reports",
    pb.StepCommand: "step_commands",
    pb.Suspension: "suspensions",
    pb.RunResult: "run_results",
    pb.LeaseRelease: "lease_releases",
}
"""Where each kind of item travels in a message."""

Item = pb.StepReport | pb.StepCommand | pb.Suspension | pb.RunResult | pb.LeaseRelease
Fields = Any  # Any: whatever the message takes


def a_definition(name: str = "w", queue: str = "q", **changes: Fields) -> workflow_pb2.WorkflowDefinition:
    """A definition whose digest follows from its content."""
    definition = workflow_pb2.WorkflowDefinition(name=name, queue=queue, **changes)
    if not definition.definition_digest:
        definition.definition_digest = definition.SerializeToString(deterministic=True).hex()[:64]
    return definition


def an_open(*workflows: str | workflow_pb2.WorkflowDefinition, **changes: Fields) -> pb.OpenSession:
    """The first message of a worker of its own, with one slot."""
    definitions = [a_definition(one) if isinstance(one, str) else one for one in workflows]
    fields: dict[str, Fields] = {
        "min_revision": REVISION,
        "max_revision": REVISION,
        "owner": "owner-1",
        "worker_name": f"worker-{next(NAMES)}",
        "instance_id": secrets.token_hex(8),
        "build_id": "build-1",
        "sdk": pb.SdkInfo(name="scripted", version="0", language="python"),
        "slot_limit": 1,
        "session_number": 1,
        "workflows": definitions,
    }
    return pb.OpenSession(**{**fields, **changes})


def _a_probe() -> pb.StepReport:
    """A report under a lease of no run, which the store has to answer."""
    return pb.StepReport(
        request_id=next(PROBES),
        lease_token=f"run_of-nobody.{'x' * 15}",
        step_name="probe",
        step_kind=run_pb2.STEP_KIND_FUNCTION,
        status=run_pb2.STEP_STATUS_SUCCEEDED,
    )


class ScriptedWorker:
    """One stream of a worker."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._call = stubs.WorkerServiceStub(channel).Session()
        self._heard = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._beats: asyncio.Task[None] | None = None
        self._silence = asyncio.Event()
        self._sequence = 0
        self._taken = 0
        self.opened: pb.SessionOpened | None = None
        self.assignments: list[pb.Assignment] = []
        self.answers: dict[int, pb.ItemResult] = {}
        self.packed: list[int] = []
        """The request ids that came as `ok_request_ids`."""
        self.cancellations: list[pb.Cancellation] = []
        self.resolutions: list[pb.WaitResolution] = []
        self.replies: list[pb.HeartbeatReply] = []
        self.drain_acks = 0
        self.draining: pb.GatewayDraining | None = None
        self.error: pb.SessionError | None = None
        self.order: list[str] = []
        """What came, by field, in the order in which it came."""
        self.ended = False
        self.code: grpc.StatusCode | None = None
        """The status with which the stream ended; None while it is open, and when this side cut it."""
        self.held: dict[str, pb.LeaseState.ValueType] = {}
        """The leases that heartbeats list, by token, with their states."""
        self.open_waits: dict[str, list[str]] = {}
        """The waits that heartbeats list as open, by token."""
        self.most_held = 0
        self._listening = asyncio.create_task(self._listen(), name="scripted-worker")

    # ---- saying ----

    async def say(self, **fields: Fields) -> None:
        """Sends one message with these fields. What a stream that has ended does not take is lost."""
        await self.write(pb.SessionRequest(**fields))

    async def write(self, message: pb.SessionRequest) -> None:
        """Sends a message as it is."""
        try:
            async with self._writing:
                await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            await self.until(lambda: self.ended, saying="the write failed, but the stream has not ended")

    async def open(self, opening: pb.OpenSession) -> pb.SessionOpened:
        """Opens the session; fails when the gateway refuses."""
        await self.say(open=opening)
        await self.until(lambda: self.opened or self.ended, saying="no answer to open")
        assert self.opened is not None, f"refused: {self.error}"
        for lease in opening.held_leases:
            self.held[lease.lease_token] = lease.state
        return self.opened

    async def beat(self, *tokens: str) -> pb.HeartbeatReply:
        """Sends a heartbeat that lists just these leases as running, and returns its answer."""
        leases = [pb.HeldLease(lease_token=token, state=pb.LEASE_STATE_RUNNING) for token in tokens]
        return await self.beat_with(leases)

    async def beat_with(self, leases: list[pb.HeldLease]) -> pb.HeartbeatReply:
        """Sends a heartbeat with these leases, and returns its answer: to a later one, when both were due at once."""
        sequence = await self._send_beat(leases)
        reply = await self.until(
            lambda: next((reply for reply in self.replies if reply.sequence >= sequence), None),
            saying=f"no answer to heartbeat {sequence}",
        )
        assert reply is not None
        return reply

    def inventory(self) -> list[pb.HeldLease]:
        """What heartbeats list."""
        return [
            pb.HeldLease(lease_token=token, state=state, open_waits=self.open_waits.get(token, ()))
            for token, state in self.held.items()
        ]

    async def _send_beat(self, leases: list[pb.HeldLease]) -> int:
        self._sequence += 1
        sequence = self._sequence
        await self.say(heartbeat=pb.Heartbeat(sequence=sequence, leases=leases))
        return sequence

    def beat_on(self) -> None:
        """Sends a heartbeat with `held` in every interval that the gateway dictates, from now on."""
        assert self.opened is not None, "not open"
        self._silence.clear()
        interval_s = self.opened.timing.heartbeat_interval.ToTimedelta().total_seconds()
        self._beats = asyncio.create_task(self._beat_on(interval_s))

    async def _beat_on(self, interval_s: float) -> None:
        while not (self.ended or self._silence.is_set()):
            await self._send_beat(self.inventory())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._silence.wait(), interval_s)

    async def fall_silent(self) -> None:
        """Sends no more heartbeats; the stream stays open."""
        self._silence.set()  # not canceled: that would break off a stream that is being written to
        if self._beats is not None:
            await asyncio.wait([self._beats])

    async def acknowledge(self, assignment: pb.Assignment) -> None:
        """The receipt of an assignment."""
        await self.say(assignment_acks=[pb.AssignmentAck(lease_token=assignment.lease_token)])

    async def reject(self, assignment: pb.Assignment, reason: pb.RejectReason.ValueType) -> None:
        """Does not take an assignment."""
        self.held.pop(assignment.lease_token, None)
        await self.say(assignment_acks=[pb.AssignmentAck(lease_token=assignment.lease_token, reject_reason=reason)])

    async def send(self, *items: Item) -> None:
        """Sends items, all in one message."""
        fields: dict[str, list[Item]] = {}
        for item in items:
            fields.setdefault(FIELD_OF[type(item)], []).append(item)
            if isinstance(item, (pb.RunResult, pb.LeaseRelease)):
                self.held.pop(item.lease_token, None)
                self.open_waits.pop(item.lease_token, None)
        await self.say(**fields)

    async def do(self, item: Item) -> pb.ItemResult:
        """Sends an item and returns its answer; one that is done with nothing to say is an ItemResult too."""
        self.answers.pop(item.request_id, None)
        await self.send(item)
        return await self.answer_to(item)

    async def suspend(self, item: pb.Suspension) -> pb.ItemResult:
        """Sends a suspension, returns its answer, and keeps the account of its lease as a worker does."""
        answer = await self.do(item)
        token = item.lease_token
        match answer.status:
            case pb.ITEM_STATUS_PARKED:
                self.held[token] = pb.LEASE_STATE_PARKED
                self.open_waits[token] = [wait.step_name for wait in item.waits]
            case pb.ITEM_STATUS_RESOLVED:
                self.held[token] = pb.LEASE_STATE_RUNNING
            case _:
                self.held.pop(token, None)
                self.open_waits.pop(token, None)
        return answer

    async def resolution(self, number: int = 1, within: float = WITHIN_S) -> pb.WaitResolution:
        """The outcome of a wait that was pushed as the first one, or as that many."""
        await self.until(lambda: len(self.resolutions) >= number, within=within, saying="told of no end of a wait")
        return self.resolutions[number - 1]

    async def answer_to(self, item: Item) -> pb.ItemResult:
        """The answer to an item that was sent."""
        request_id = item.request_id
        answer = await self.until(lambda: self.answers.get(request_id), saying=f"no answer to {item}"[:500])
        assert answer is not None
        return answer

    # ---- hearing ----

    async def take(self) -> pb.Assignment:
        """The next assignment, acknowledged."""
        assignment = await self.assignment()
        await self.acknowledge(assignment)
        return assignment

    async def assignment(self, within: float = WITHIN_S) -> pb.Assignment:
        """The next assignment that was not yet asked for."""
        number = self._taken
        await self.until(lambda: len(self.assignments) > number, within=within, saying="no assignment")
        self._taken += 1
        return self.assignments[number]

    async def quiet(self) -> None:
        """Returns when whatever was claimed for this worker before now has arrived.

        All script calls of a gateway share one ordered pipeline. So the answer to a report comes after those to the
        claims before it; each round lets the gateway look for work once more.
        """
        for _ in range(3):
            await self.beat_with(self.inventory())
            answer = await self.do(_a_probe())
            assert answer.status == pb.ITEM_STATUS_LEASE_LOST

    async def until(self, what: Callable[[], T], *, within: float = WITHIN_S, saying: str = "") -> T:
        """The first truthy value of `what()`, looked at whenever something has come; fails at the deadline, or at the
        end of the stream.
        """
        try:
            async with asyncio.timeout(within), self._heard:
                while not (value := what()):
                    assert not self.ended, f"{saying}; the stream has ended: {self.code} {self.error}"
                    await self._heard.wait()
                return value
        except TimeoutError:
            raise AssertionError(f"not within {within} s: {saying}") from None

    async def end(self, within: float = WITHIN_S) -> pb.SessionError | None:
        """Waits until the gateway has ended the stream; why, if it said so."""
        await self.until(lambda: self.ended, within=within, saying="the stream goes on")
        return self.error

    async def _listen(self) -> None:
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                self._file(response)
                async with self._heard:
                    self._heard.notify_all()
            self.code = await self._call.code()
        except grpc.aio.AioRpcError as error:
            self.code = error.code()
        except asyncio.CancelledError:
            if not self._call.cancelled():
                raise
        finally:
            self.ended = True
        async with self._heard:
            self._heard.notify_all()

    def _file(self, response: pb.SessionResponse) -> None:
        self.order += [field.name for field, _ in response.ListFields()]
        if response.HasField("opened"):
            self.opened = response.opened
        if response.HasField("heartbeat_reply"):
            self.replies.append(response.heartbeat_reply)
        for request_id in response.ok_request_ids:
            self.packed.append(request_id)
            self.answers[request_id] = pb.ItemResult(request_id=request_id, status=pb.ITEM_STATUS_OK)
        for answer in response.item_results:
            self.answers[answer.request_id] = answer
        self.cancellations += response.cancellations
        for resolution in response.wait_resolutions:
            self.resolutions.append(resolution)
            if resolution.lease_token in self.held:
                self.held[resolution.lease_token] = pb.LEASE_STATE_RUNNING
        for assignment in response.assignments:
            self.assignments.append(assignment)
            self.held[assignment.lease_token] = pb.LEASE_STATE_RUNNING
        self.most_held = max(self.most_held, len(self.held))
        self.drain_acks += response.HasField("drain_ack")
        if response.HasField("gateway_draining"):
            self.draining = response.gateway_draining
        if response.HasField("error"):
            self.error = response.error

    # ---- leaving ----

    async def finish_writing(self) -> None:
        """Ends this side of the stream, without a word."""
        await self._call.done_writing()

    async def cut(self) -> None:
        """Breaks the stream off, as a lost connection does."""
        self._silence.set()
        self._call.cancel()
        await asyncio.wait([task for task in (self._listening, self._beats) if task is not None])


async def refusal_of(worker: ScriptedWorker, opening: pb.OpenSession) -> pb.SessionError:
    """How the gateway refuses to open a session; the stream ends with it."""
    await worker.say(open=opening)
    error = await worker.end()
    assert worker.opened is None, "it was opened"
    assert error is not None, f"the stream ended without a word: {worker.code}"
    return error
