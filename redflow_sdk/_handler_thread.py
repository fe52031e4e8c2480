"""How a handler in a thread has things done on the worker's loop."""

from __future__ import annotations

import asyncio
import contextvars
import queue
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import TypeAlias, TypeVar

from redflow_sdk._suspension import RunSuspended, Suspension
from redflow_sdk._threads import Outcome, PendingCall
from redflow_sdk._types import Value
from redflow_sdk.errors import RunCanceledError

T = TypeVar("T")

CallHere: TypeAlias = Callable[[Callable[[], Value]], Coroutine[Value, Value, Value]]


class HandlerThread:
    """The thread of one `def` handler, which waits for each of these, in a task of the loop."""

    def __init__(self, suspension: Suspension) -> None:
        self._suspension = suspension
        self._loop = asyncio.get_running_loop()
        self._waits_for: set[asyncio.Task[Outcome]] = set()

    def on_loop(self, work: Coroutine[Value, Value, T]) -> T:
        """What the coroutine comes to. Raises what it raises; RunCanceledError and RunSuspended when it is canceled."""
        # The task has the context of this thread: what is done there knows within which step it is.
        value: T = asyncio.run_coroutine_threadsafe(self._outcome_of(work), self._loop).result().get()
        return value

    def with_calls(self, work: Callable[[CallHere], Coroutine[Value, Value, T]]) -> T:
        """What the coroutine comes to; what it calls by its argument is called in this thread, with its context."""
        calls: queue.SimpleQueue[PendingCall | None] = queue.SimpleQueue()

        async def here(call: Callable[[], Value]) -> Value:
            done: Future[Outcome] = Future()
            calls.put(PendingCall(partial(contextvars.copy_context().run, call), done))
            return (await asyncio.wrap_future(done)).get()

        ended = asyncio.run_coroutine_threadsafe(self._outcome_of(work(here)), self._loop)
        ended.add_done_callback(lambda _: calls.put(None))
        while (pending := calls.get()) is not None:
            pending.do()
        value: T = ended.result().get()
        return value

    def cancel(self) -> None:
        """Cancels what the handler waits for, which itself cannot be interrupted."""
        for task in self._waits_for - {asyncio.current_task()}:
            task.cancel()

    async def _outcome_of(self, work: Coroutine[Value, Value, Value]) -> Outcome:
        """What became of it, as a value: a task that raised SystemExit would end the loop."""
        task = asyncio.current_task()
        assert task is not None
        self._waits_for.add(task)
        try:
            return Outcome(await work)
        except asyncio.CancelledError as error:
            if self._suspension.is_over:
                return Outcome(error=RunSuspended())
            canceled = RunCanceledError("the run was canceled")
            canceled.__cause__ = error
            return Outcome(error=canceled)
        except BaseException as error:  # raised again in the thread that waits
            return Outcome(error=error)
        finally:
            self._waits_for.discard(task)
