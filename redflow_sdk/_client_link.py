"""The way between a caller's loop and the io thread for what callers ask most: starts of runs, waits for their ends.

What is asked in one turn of the loop crosses in one hop and, if it is starts, goes in one call; each has an answer of
its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from redflow_sdk._hop import Hop
from redflow_sdk._transport.calls import Calls, Start, Started
from redflow_sdk._transport.run_waits import Outcome
from redflow_sdk._transport.thread import IoThread
from redflow_sdk.errors import RedflowError
from redflow_sdk.records import Run

BATCH_RUNS: Final = 1000
BATCH_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """A start that a caller waits for, at most `timeout_s`."""

    start: Start
    timeout_s: float
    answer: asyncio.Future[Started]


class ClientLink:
    """Of one client and one loop."""

    def __init__(self, calls: Calls, io: IoThread) -> None:
        self._calls = calls
        self._io = io
        self._loop = asyncio.get_running_loop()
        self._asked: list[Asked] = []
        self._said: Hop[Callable[[], None]] = Hop(self._loop, io.loop, _do)
        self._ends: Hop[tuple[asyncio.Future[Run | None], Outcome]] = Hop(io.loop, self._loop, self._end)

    # ---- on the caller's loop ----

    def start(self, start: Start, timeout_s: float) -> asyncio.Future[Started]:
        """Starts a run. The future raises what `Calls.start` raises."""
        asked = Asked(start, timeout_s, self._loop.create_future())
        if not self._asked:
            self._loop.call_soon(self._flush_starts)
        self._asked.append(asked)
        return asked.answer

    def _flush_starts(self) -> None:
        asked, self._asked = self._asked, []
        for together in _batches(each for each in asked if not each.answer.done()):
            starts, timeout_s = [each.start for each in together], together[0].timeout_s
            answering = self._io.submit(self._calls.start_all(starts, timeout_s))
            answering.add_done_callback(partial(self._were_answered, together))

    def _answer(self, together: Sequence[Asked], answering: Future[Sequence[Started | RedflowError]]) -> None:
        error = answering.exception()
        answers = [error] * len(together) if error is not None else answering.result()
        for asked, answer in zip(together, answers, strict=True):
            if asked.answer.done():
                continue
            if isinstance(answer, Started):
                asked.answer.set_result(answer)
            elif answer is not None:
                asked.answer.set_exception(answer)

    async def wait(self, run_id: str, timeout_s: float) -> Run | None:
        """The run when it ends in time; None when it does not, or the gateway is to be asked by a call. Raises
        RunNotFoundError, UnavailableError.
        """
        ended: asyncio.Future[Run | None] = self._loop.create_future()
        heard = partial(self._heard, ended)
        self._said.give(partial(self._calls.waits.want, run_id, heard))
        try:
            async with asyncio.timeout(timeout_s):
                return await ended
        except TimeoutError:
            return None
        finally:
            if not ended.done() or ended.cancelled():
                self._said.give(partial(self._calls.waits.forget, run_id, heard))

    def _end(self, ends: Iterable[tuple[asyncio.Future[Run | None], Outcome]]) -> None:
        for ended, outcome in ends:
            if ended.done():
                continue
            if isinstance(outcome, RedflowError):
                ended.set_exception(outcome)
            else:
                ended.set_result(outcome)

    # ---- on the io thread ----

    def _were_answered(self, together: Sequence[Asked], answering: Future[Sequence[Started | RedflowError]]) -> None:
        with suppress(RuntimeError):  # the caller's loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._answer, together, answering)

    def _heard(self, ended: asyncio.Future[Run | None], outcome: Outcome) -> None:
        self._ends.give((ended, outcome))


def _do(said: Iterable[Callable[[], None]]) -> None:
    for what in said:
        what()


def _batches(asked: Iterable[Asked]) -> Iterator[list[Asked]]:
    """Those that may go in one call: they are given up at the same time, and fit into a message."""
    batch: list[Asked] = []
    size = 0
    for each in asked:
        size += len(each.start.run.input.data)
        is_full = len(batch) == BATCH_RUNS or size > BATCH_BYTES
        if batch and (is_full or batch[0].timeout_s != each.timeout_s):
            yield batch
            batch, size = [], len(each.start.run.input.data)
        batch.append(each)
    if batch:
        yield batch
