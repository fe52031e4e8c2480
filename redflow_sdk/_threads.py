"""The threads of a worker: for `def` handlers, and for `def` steps of async handlers. One pool for both can deadlock.

A thread cannot be interrupted. One that outlives its time-out or its run is overdue: it takes up a slot until it ends.
They are daemon threads, which those of `concurrent.futures` are not: one that never ends does not keep the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from redflow_sdk._types import Value


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call returned or raised. Not every exception may be raised into a future: StopIteration may not."""

    value: Value = None
    error: BaseException | None = None

    @classmethod
    def of(cls, call: Callable[[], Value]) -> Outcome:
        """Calls, and keeps what comes of it."""
        try:
            return cls(call())
        except BaseException as error:  # whatever it is, it belongs to whoever looks at the outcome
            return cls(error=error)

    def get(self) -> Value:
        """The value. Raises what the call raised."""
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call, and where its outcome goes."""

    call: Callable[[], Value]
    done: Future[Outcome]

    def do(self) -> None:
        """Calls, unless nobody waits any more."""
        if self.done.set_running_or_notify_cancel():
            self.done.set_result(Outcome.of(self.call))


class Pool:
    """Up to `size` threads, each begun when there is none idle."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._calls: queue.SimpleQueue[PendingCall | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._begun = 0

    def submit(self, call: Callable[[], Value]) -> Future[Outcome]:
        """Calls in a thread, now or when one is free. On the worker's loop only."""
        done: Future[Outcome] = Future()
        self._calls.put(PendingCall(call, done))
        if not self._idle.acquire(blocking=False) and self._begun < self._size:
            self._begun += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._begun}", daemon=True).start()
        return done

    def _work(self) -> None:
        while (pending := self._calls.get()) is not None:
            pending.do()
            del pending  # an idle thread keeps no run's values alive
            self._idle.release()

    def close(self) -> None:
        """Ends the threads, each when its call is done."""
        for _ in range(self._begun):
            self._calls.put(None)


class Threads:
    """Both pools, and the account of overdue threads."""

    def __init__(
        self, handlers: int, steps: int, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None]
    ) -> None:
        """So many threads for each. `on_change` is called on the loop when the number of overdue ones has changed."""
        self._handlers = Pool(handlers, "redflow-handler")
        self._steps = Pool(steps, "redflow-step")
        self._loop = loop
        self._on_change = on_change
        self.overdue = 0

    async def run_handler(self, call: Callable[[], Value]) -> Value:
        """Calls a handler in a thread, with the context variables of the caller."""
        running = self._handlers.submit(partial(contextvars.copy_context().run, call))
        return (await asyncio.wrap_future(running)).get()

    async def run_step(self, call: Callable[[], Value]) -> Value:
        """Calls a step in a thread, with the context variables of the caller."""
        running = self._steps.submit(partial(contextvars.copy_context().run, call))
        try:
            outcome = await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancelled() and not running.done():
                self.outlived(running)
            raise
        return outcome.get()

    def outlived(self, running: Future[Outcome]) -> None:
        """Nobody waits for this thread any more."""
        self.overdue += 1
        self._on_change()
        running.add_done_callback(partial(self._ended_at_last, self._loop))

    def _ended_at_last(self, loop: asyncio.AbstractEventLoop, running: Future[Outcome]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self.overdue -= 1
        self._on_change()

    def close(self) -> None:
        """Takes no more work; what runs goes on."""
        self._handlers.close()
        self._steps.close()
