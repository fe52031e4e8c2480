"""Everything a worker said on the wire, in the order in which it came, and ways to look at it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.eventually import eventually

M = TypeVar("M")

Item: TypeAlias = pb.StepReport | pb.StepCommand | pb.Suspension | pb.RunResult | pb.LeaseRelease
"""What a worker wants an answer to, by `request_id`."""


@dataclass(frozen=True)
class Heard(Generic[M]):
    """Something a worker said: when (seconds of the monotonic clock), and in which session (from 1)."""

    at: float
    session: int
    message: M


@dataclass
class WireLog:
    """Appended to by the gateway's threads, read by the test."""

    requests: list[Heard[pb.SessionRequest]] = field(default_factory=list)
    fetches: list[Heard[pb.GetStepOutputsRequest]] = field(default_factory=list)

    def add(self, session: int, request: pb.SessionRequest) -> None:
        """A message of a session."""
        self.requests.append(Heard(time.monotonic(), session, request))

    def _of(self, pick: Callable[[pb.SessionRequest], Sequence[M]]) -> list[Heard[M]]:
        return [Heard(heard.at, heard.session, found) for heard in list(self.requests) for found in pick(heard.message)]

    # ---- by kind ----

    def opens(self) -> list[Heard[pb.OpenSession]]:
        return self._of(lambda request: [request.open] if request.HasField("open") else [])

    def beats(self, session: int | None = None) -> list[Heard[pb.Heartbeat]]:
        heard = self._of(lambda request: [request.heartbeat] if request.HasField("heartbeat") else [])
        return [beat for beat in heard if session in (None, beat.session)]

    def held(self) -> dict[str, str]:
        """The leases and their states as the last heartbeat lists them; nothing while there was none."""
        beats = self.beats()
        return states_of(beats[-1].message.leases) if beats else {}

    def open_waits(self, token: str) -> list[str]:
        """The steps that a run waits for, as the last heartbeat lists them."""
        beats = self.beats()
        leases = beats[-1].message.leases if beats else ()
        return [name for lease in leases if lease.lease_token == token for name in lease.open_waits]

    def acks(self, token: str | None = None) -> list[Heard[pb.AssignmentAck]]:
        """The receipts; of a lease that has none, its first item is one."""
        acks = self._of(lambda it: it.assignment_acks)
        acknowledged = {ack.message.lease_token for ack in acks}
        for item in self._of(items_of):
            if item.message.lease_token not in acknowledged:
                acknowledged.add(item.message.lease_token)
                receipt = pb.AssignmentAck(lease_token=item.message.lease_token)
                acks.append(Heard(item.at, item.session, receipt))
        return [ack for ack in acks if token in (None, ack.message.lease_token)]

    def reports(self, token: str | None = None, step: str | None = None) -> list[Heard[pb.StepReport]]:
        heard = [it for it in self._of(lambda it: it.step_reports) if token in (None, it.message.lease_token)]
        return [report for report in heard if step in (None, report.message.step_name)]

    def commands(self, token: str | None = None) -> list[Heard[pb.StepCommand]]:
        return [it for it in self._of(lambda it: it.step_commands) if token in (None, it.message.lease_token)]

    def begun(self, token: str | None = None) -> list[pb.Wait]:
        """The waits that began while their run went on."""
        return [wait for command in self.commands(token) for wait in command.message.wait.waits]

    def suspensions(self, token: str | None = None) -> list[Heard[pb.Suspension]]:
        return [it for it in self._of(lambda it: it.suspensions) if token in (None, it.message.lease_token)]

    def results(self, token: str | None = None) -> list[Heard[pb.RunResult]]:
        return [it for it in self._of(lambda it: it.run_results) if token in (None, it.message.lease_token)]

    def releases(self, token: str | None = None) -> list[Heard[pb.LeaseRelease]]:
        return [it for it in self._of(lambda it: it.lease_releases) if token in (None, it.message.lease_token)]

    def items(self, token: str) -> list[Heard[Item]]:
        return [item for item in self._of(items_of) if item.message.lease_token == token]

    def said(self, token: str) -> list[str]:
        """The kinds of all items of a run, in order."""
        return [type(item.message).__name__ for item in self.items(token)]

    def slot_limits(self) -> list[int]:
        heard = self._of(lambda request: [request.capacity] if request.HasField("capacity") else [])
        return [capacity.message.slot_limit for capacity in heard]

    def drains(self) -> list[Heard[pb.DrainRequest]]:
        return self._of(lambda request: [request.drain] if request.HasField("drain") else [])

    def closes(self) -> list[Heard[pb.CloseSession]]:
        return self._of(lambda request: [request.close] if request.HasField("close") else [])

    # ---- waiting for what must come ----

    async def open(self, number: int = 1, *, within: float = 5.0) -> Heard[pb.OpenSession]:
        """The opening of the session of this number."""
        await eventually(lambda: len(self.opens()) >= number, within=within, saying=f"session {number} is opened")
        return self.opens()[number - 1]

    async def ack(self, token: str, *, within: float = 5.0) -> pb.AssignmentAck:
        return await self._first(self.acks, token, within)

    async def report(self, token: str, step: str, *, within: float = 5.0) -> pb.StepReport:
        said = f"step {step} of {token} is reported"
        return (await eventually(lambda: self.reports(token, step), within=within, every=0.01, saying=said))[0].message

    async def command(self, token: str, *, within: float = 5.0) -> pb.StepCommand:
        return await self._first(self.commands, token, within)

    async def suspension(self, token: str, number: int = 1, *, within: float = 5.0) -> pb.Suspension:
        """What a run of this token asks for when it does so for this time, from 1."""
        said = f"{token} asks to be set aside, {number}"
        await eventually(lambda: len(self.suspensions(token)) >= number, within=within, every=0.01, saying=said)
        return self.suspensions(token)[number - 1].message

    async def result(self, token: str, *, within: float = 5.0) -> pb.RunResult:
        return await self._first(self.results, token, within)

    async def release(self, token: str, *, within: float = 5.0) -> pb.LeaseRelease:
        return await self._first(self.releases, token, within)

    async def beat(self, *, within: float = 5.0) -> pb.Heartbeat:
        """The next heartbeat from now on."""
        known = len(self.beats())
        await eventually(lambda: len(self.beats()) > known, within=within, every=0.01, saying="there is a heartbeat")
        return self.beats()[known].message

    async def _first(self, query: Callable[[str], list[Heard[M]]], token: str, within: float) -> M:
        said = f"{query.__name__} of {token}"
        return (await eventually(lambda: query(token), within=within, every=0.01, saying=said))[0].message


def items_of(request: pb.SessionRequest) -> list[Item]:
    """What a message wants answers to, in the order in which a gateway deals with it."""
    return [
        *request.step_reports,
        *request.step_commands,
        *request.suspensions,
        *request.run_results,
        *request.lease_releases,
    ]


def states_of(leases: Sequence[pb.HeldLease]) -> dict[str, str]:
    """Leases as a worker lists them: the state of each token."""
    return {lease.lease_token: pb.LeaseState.Name(lease.state).removeprefix("LEASE_STATE_") for lease in leases}
