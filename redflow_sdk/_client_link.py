"""The way between a caller's loop and the io thread.

What callers ask most, starts of runs and waits for their ends, crosses in one hop if it is asked in one turn of the
loop, and so do the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from redflow_sdk._hop import Hop
from redflow_sdk._transport.calls import WAIT_SLICE, Calls
from redflow_sdk._transport.starts import Asked, Start, Started
from redflow_sdk._transport.thread import IoThread
from redflow_sdk._types import Value
from redflow_sdk.errors import RedflowError
from redflow_sdk.records import Run

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Executed:
    """A run that was started, and how it has ended if that was told in time."""

    started: Started
    ended: Run | None


class ClientLink:
    """Of one client and one loop, which may be the one of the io thread."""

    def __init__(self, calls: Calls, io: IoThread, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = calls
        self._runs = calls.run_stream
        self._io = io
        self._loop = loop
        self._said: Hop[Callable[[], None]] = Hop(self._loop, io.loop, _do)
        self._heard: Hop[Callable[[], None]] = Hop(io.loop, self._loop, _do)

    async def call(
        self, method: Callable[Concatenate[Calls, P], Coroutine[Value, Value, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Makes one of the calls. Raises its refusal, and UnavailableError when there is no answer in time."""
        return await self._io.run(method(self._calls, *args, **kwargs))

    async def close(self) -> None:
        """Ends the connection, for all loops."""
        await self.call(Calls.close)

    async def start(self, start: Start, timeout_s: float) -> Started:
        """Starts a run. Raises the refusal, and UnavailableError when there is no answer in time."""
        answer: asyncio.Future[Started] = self._loop.create_future()
        asked = Asked(start, timeout_s, partial(self._tell, answer))
        self._said.give(partial(self._start, asked, answer))
        try:
            return await answer
        finally:
            if answer.cancelled():
                self._said.give(partial(self._runs.give_up, asked))

    async def execute(self, start: Start, timeout_s: float, wait_s: float) -> Executed:
        """Starts a run and waits for its end, at most 45 s; raises what `start` and `wait` raise."""
        answer: asyncio.Future[Started] = self._loop.create_future()
        ended: asyncio.Future[Run | None] = self._loop.create_future()
        asked = Asked(start, timeout_s, partial(self._tell, answer), partial(self._tell, ended))
        self._said.give(partial(self._start, asked, answer))
        until = self._loop.time() + min(wait_s, WAIT_SLICE)
        try:
            started = await answer
            async with asyncio.timeout_at(until):
                return Executed(started, await ended)
        except TimeoutError:
            return Executed(started, None)
        finally:
            if not ended.done() or ended.cancelled():
                self._said.give(partial(self._runs.give_up, asked))

    async def wait(self, run_id: str, timeout_s: float) -> Run | None:
        """The run when it ends in time; None when it does not, or the gateway is to be asked by a call. Raises
        RunNotFoundError, UnavailableError.
        """
        ended: asyncio.Future[Run | None] = self._loop.create_future()
        heard = partial(self._tell, ended)
        self._said.give(partial(self._runs.want, run_id, heard))
        try:
            async with asyncio.timeout(timeout_s):
                return await ended
        except TimeoutError:
            return None
        finally:
            if not ended.done() or ended.cancelled():
                self._said.give(partial(self._runs.forget, run_id, heard))

    # ---- on the io thread ----

    def _start(self, asked: Asked, answer: asyncio.Future[Started]) -> None:
        if not answer.done():  # else it was given up while it crossed
            self._runs.start(asked)

    def _tell(self, asked: asyncio.Future[T], outcome: T | RedflowError) -> None:
        self._heard.give(partial(_settle, asked, outcome))


def _settle(asked: asyncio.Future[T], outcome: T | RedflowError) -> None:
    if asked.done():
        return
    if isinstance(outcome, RedflowError):
        asked.set_exception(outcome)
    else:
        asked.set_result(outcome)


def _do(said: Iterable[Callable[[], None]]) -> None:
    for what in said:
        what()
