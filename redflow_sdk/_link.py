"""The way between a worker's own loop and the io thread. What is said in one turn of a loop crosses in one hop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from redflow_sdk._hop import Hop
from redflow_sdk._messages import Answer, Item, StepSnapshot
from redflow_sdk._protocol import WorkerProtocol
from redflow_sdk._types import Value

T = TypeVar("T")


@dataclass(slots=True)
class Said:
    """An item on its way, and who hears of its answer: `on_answer` also when nobody waits for `answer` any more."""

    item: Item
    answer: asyncio.Future[Answer]
    on_answer: Callable[[Answer], None] | None


class Link:
    """From handlers to the wire."""

    def __init__(self, io_loop: asyncio.AbstractEventLoop, loop: asyncio.AbstractEventLoop) -> None:
        self._io_loop = io_loop
        self._loop = loop
        self._protocol: WorkerProtocol | None = None
        self._said: Hop[Said] = Hop(loop, io_loop, self._submit)
        self._answers: Hop[tuple[Said, Answer]] = Hop(io_loop, loop, self._resolve)

    def connect(self, protocol: WorkerProtocol) -> None:
        """Where it leads."""
        self._protocol = protocol

    # ---- on the worker's loop ----

    def report(self, item: Item, on_answer: Callable[[Answer], None] | None = None) -> asyncio.Future[Answer]:
        """Sends an item; the future is its answer, which `on_answer` hears of too, also when nobody waits any more."""
        said = Said(item, self._loop.create_future(), on_answer)
        self._said.give(said)
        return said.answer

    async def step_on_record(self, token: str, name: str) -> StepSnapshot | None:
        """A step whose output did not fit into the assignment; None when it or the lease is lost."""
        assert self._protocol is not None
        return await self._on_io_thread(self._protocol.step_on_record(token, name))

    async def steps_on_record(self, token: str) -> tuple[StepSnapshot, ...] | None:
        """All steps of a run, when an assignment could not carry them; None when the lease is lost."""
        assert self._protocol is not None
        return await self._on_io_thread(self._protocol.steps_on_record(token))

    async def _on_io_thread(self, work: Coroutine[Value, Value, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._io_loop))

    def tell(self, what: Callable[[WorkerProtocol], None]) -> None:
        """Does something with the protocol, on its thread."""
        assert self._protocol is not None
        self._io_loop.call_soon_threadsafe(what, self._protocol)

    def _resolve(self, answers: list[tuple[Said, Answer]]) -> None:
        for said, answer in answers:
            if said.on_answer is not None:
                said.on_answer(answer)
            if not said.answer.done():
                said.answer.set_result(answer)

    # ---- on the io thread ----

    def _submit(self, items: list[Said]) -> None:
        assert self._protocol is not None
        for said in items:
            self._protocol.submit(said.item, partial(self._answered, said))

    def _answered(self, said: Said, answer: Answer) -> None:
        self._answers.give((said, answer))
