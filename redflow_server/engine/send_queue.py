"""What a gateway has to say to one worker, until the stream takes it.

Everything queued leaves in one message, up to a bound; control goes before assignments, so it never waits behind them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from redflow_server.domain.leases import ClaimedRun, Resolution, Stop
from redflow_server.domain.runs import Step
from redflow_server.domain.session import (
    Draining,
    GatewayMessage,
    HeartbeatReply,
    ItemAnswer,
    SessionEnd,
    SessionOpened,
)

T = TypeVar("T")

MESSAGE_ITEMS: Final = 256
MESSAGE_BYTES: Final = 1024 * 1024
LITTLE_BYTES: Final = 64 * 1024
IN_TIME_S: Final = 0.005


class SendQueue:
    """Queue of one session. One writer takes from it."""

    def __init__(self) -> None:
        self._opened: SessionOpened | None = None
        self._heartbeat_reply: HeartbeatReply | None = None
        self._answers: deque[ItemAnswer] = deque()
        self._stops: deque[Stop] = deque()
        self._resolutions: deque[Resolution] = deque()
        self._assignments: deque[ClaimedRun] = deque()
        self._is_drained = False
        self._draining: Draining | None = None
        self._end: SessionEnd | None = None
        self._filled = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def queued(self) -> int:
        """Items that the stream has not taken."""
        return len(self._answers) + len(self._stops) + len(self._resolutions) + len(self._assignments)

    def open(self, opened: SessionOpened) -> None:
        """The first message."""
        self._opened = opened
        self._filled.set()

    def reply(self, reply: HeartbeatReply) -> None:
        """Only the newest reply counts."""
        self._heartbeat_reply = reply
        self._filled.set()

    def answer(self, answer: ItemAnswer) -> None:
        """An answer to an item."""
        self._answers.append(answer)
        self._filled.set()

    def answer_in_time(self, answer: ItemAnswer) -> None:
        """An answer for which no handler waits. What it has made room for often follows at once, and goes along."""
        self._answers.append(answer)
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(IN_TIME_S, self._filled.set)

    def stop(self, stop: Stop) -> None:
        """An order to stop a handler. It goes with the assignment if that is still here: it must not come first."""
        for at, run in enumerate(self._assignments):
            if run.lease_token == stop.lease_token:
                self._assignments[at] = replace(run, stop=run.stop or stop)
                return
        self._stops.append(stop)
        self._filled.set()

    def resolve(self, resolution: Resolution) -> None:
        """The outcome of a wait."""
        self._resolutions.append(resolution)
        self._filled.set()

    def assign(self, run: ClaimedRun) -> None:
        """A leased run."""
        self._assignments.append(run)
        self._filled.set()

    def withdraw(self, lease_token: str) -> bool:
        """The lease is no longer the worker's: an assignment that the stream has not taken does not leave any more.

        Whether there was one: otherwise the worker may have it.
        """
        before = len(self._assignments)
        self._assignments = deque(run for run in self._assignments if run.lease_token != lease_token)
        return len(self._assignments) < before

    def drained(self) -> None:
        """No assignment follows."""
        self._is_drained = True
        self._filled.set()

    def drain(self, draining: Draining) -> None:
        """The gateway is going away."""
        self._draining = draining
        self._filled.set()

    def end(self, end: SessionEnd | None = None) -> None:
        """Nothing follows. Without a value the session ends as agreed."""
        self._end = self._end or end or SessionEnd("", "")
        self._filled.set()

    def clear(self) -> tuple[ClaimedRun, ...]:
        """Drops what the stream has not taken, except for the end. The assignments among it."""
        self._answers.clear()
        self._stops.clear()
        self._resolutions.clear()
        left = tuple(self._assignments)
        self._assignments.clear()
        return left

    async def take(self) -> GatewayMessage:
        """The next message, as soon as there is something to say."""
        await self._filled.wait()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        answers, room_bytes = _take(self._answers, MESSAGE_BYTES, _answer_bytes)
        # Not before the answer that has made room for them: a worker deals with a message in this order, too.
        are_all = not self._answers
        resolutions, room_bytes = _take(self._resolutions, room_bytes, _resolution_bytes) if are_all else ((), 0)
        assignments, _ = _take(self._assignments, room_bytes, _run_bytes) if are_all else ((), 0)
        message = GatewayMessage(
            opened=self._opened,
            heartbeat_reply=self._heartbeat_reply,
            answers=answers,
            stops=tuple(self._stops.popleft() for _ in range(min(len(self._stops), MESSAGE_ITEMS))),
            resolutions=resolutions,
            assignments=assignments,
            is_drained=self._is_drained and not self._assignments,
            draining=self._draining,
            end=None if self.queued else self._end,
        )
        self._opened = self._heartbeat_reply = self._draining = None
        if message.is_drained:
            self._is_drained = False
        if not self.queued and not self._is_drained and (message.end is not None or self._end is None):
            self._filled.clear()
        return message


def _take(queue: deque[T], room_bytes: int, size: Callable[[T], int]) -> tuple[tuple[T, ...], int]:
    """What has room in the message, and the room that is left. What is larger goes alone, or with little else."""
    taken: list[T] = []
    while queue and len(taken) < MESSAGE_ITEMS:
        size_bytes = size(queue[0])
        if size_bytes > room_bytes and (taken or room_bytes < MESSAGE_BYTES - LITTLE_BYTES):
            break
        room_bytes -= size_bytes
        taken.append(queue.popleft())
    return tuple(taken), room_bytes


def _answer_bytes(answer: ItemAnswer) -> int:
    steps = (*answer.conflicting, *answer.resolutions)
    return 64 + sum(map(_step_bytes, steps)) if steps else 64


def _resolution_bytes(resolution: Resolution) -> int:
    return 128 + (_step_bytes(resolution.step) if resolution.step else 0)


def _run_bytes(run: ClaimedRun) -> int:
    size = 256 + (len(run.input.data) if run.input else 0)
    return size + sum(map(_step_bytes, run.steps)) if run.steps else size


def _step_bytes(step: Step) -> int:
    return 64 + (0 if step.is_left_out else step.size_bytes)
