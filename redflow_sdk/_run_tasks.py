"""The tasks of a run, and whether they are at rest: each blocked on a wait, or on another of them.

It owns the list of a run's tasks, and the knowledge of what asyncio builds on them: gather, TaskGroup, wait, shield,
wait_for, as_completed. What a wait is, when to look, and what becomes of a run that is held, it leaves to who asks.

Listed is what `loop.create_task` makes in the context of the run, as long as the factory that `watch` installs is the
loop's, or is called by it. Any other task counts as not there: one that `asyncio.Task` itself makes, one in another
context, one of a factory that was set later. Whatever it does, the run may be at rest. Only a task of the run that
awaits it is held, unless the other one is in turn blocked on a wait or on a task of the run.

Locks, queues and events are raw awaits, also where another task of the run is to release them: they do not say who is.
So is what another Python builds in another way. Private parts of asyncio are read here, and what does not say what is
expected of it is not guessed at.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Final, TypeAlias

from redflow_sdk._contained import Contained
from redflow_sdk._types import Function, Value

AnyFuture: TypeAlias = asyncio.Future[Value]
AnyTask: TypeAlias = asyncio.Task[Value]

_UNKNOWN: Final = object()
_METHODS: Final = (BuiltinMethodType, MethodType)
_READABLE: Final = (FunctionType, MethodType, partial)


class State(Enum):
    """How a run stands."""

    AT_REST = auto()
    """Each of its tasks is blocked on a wait, or on another of them."""
    MOVING = auto()
    """A task is to take its next step, or the first one is to come; where that leads the run is open."""
    HELD = auto()
    """A task is blocked on something else: a raw await."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands, and the task that holds it: one of them, when there are several."""

    state: State
    holder: AnyTask | None = None

    @property
    def holder_name(self) -> str:
        """The task as a line of a log names it."""
        if self.holder is None:
            return ""
        work = self.holder.get_coro()
        return f"{self.holder.get_name()} ({getattr(work, '__qualname__', type(work).__qualname__)})"


class RunTasks:
    """The tasks of one run. To be made and used on its loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # A context may outlive its run, in a connection for one, and must not keep what the run's tasks hold.
        self._root: weakref.ref[AnyTask] | None = None
        self._created: weakref.WeakSet[AnyTask] | None = None

    def __enter__(self) -> None:
        """The current task is the run's, and within this so are the tasks that it creates, and those that they do."""
        task = asyncio.current_task()
        assert task is not None
        self._root = weakref.ref(task)
        self._token = _run.set(self)

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):  # a coroutine that is thrown away ends in a context that is not its own
            _run.reset(self._token)

    def add(self, task: AnyTask, loop: asyncio.AbstractEventLoop) -> None:
        """Takes what was created in the context of the run, unless the loop is a thread's, or it is no asyncio task."""
        if loop is self._loop and hasattr(task, "_fut_waiter"):
            if self._created is None:
                self._created = weakref.WeakSet()
            self._created.add(task)

    def has(self, task: AnyTask) -> bool:
        """Whether a task is the run's. In any thread."""
        return task in (self._created or ())

    @property
    def tasks(self) -> list[AnyTask]:
        """Those that there still are."""
        root = None if self._root is None else self._root()
        return [*(() if root is None else (root,)), *(self._created or ())]

    def standing(self, waits: Collection[AnyFuture]) -> Standing:
        """How the run stands when these are what it may wait for. That a timer may end such a wait does not hold it.

        When something raw has just ended, the task to go on may be held for some turns yet, but the run is not at rest.
        """
        live = [task for task in self.tasks if not task.done()]
        if not live or any(_is_to_go_on(task) for task in live):
            return Standing(State.MOVING)
        raw = _not_completed_by([*waits, *live], {_awaited_by(task) for task in live})
        holder = next((task for task in live if _awaited_by(task) in raw), None) if raw else None
        return Standing(State.AT_REST) if holder is None else Standing(State.HELD, holder)


_run: Final[ContextVar[RunTasks | None]] = ContextVar("run", default=None)
"""The run in whose context something happens."""


# ---- which tasks a run has ----


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Has tasks put on the list of their run, from now on. A second time it does nothing."""
    before = loop.get_task_factory()
    if not isinstance(before, _Factory):
        loop.set_task_factory(_Factory(before))


class _Factory:
    """Creates tasks as the factory before it does. Those of a run are put on its list, and cannot end the loop."""

    def __init__(self, before: Function | None) -> None:
        self._create = before or _new_task

    def __call__(self, loop: asyncio.AbstractEventLoop, work: Value, /, **options: Value) -> AnyTask:
        context: Context | None = options.get("context")
        run = _run.get() if context is None else context.get(_run)
        if run is None:
            return self._create(loop, work, **options)
        # The task gets no name here: the traceback of an eager one that fails keeps this frame, and it the task.
        return _listed(self._create(loop, Contained(work) if asyncio.iscoroutine(work) else work, **options), loop, run)


def _new_task(loop: asyncio.AbstractEventLoop, work: Value, **options: Value) -> AnyTask:
    return asyncio.Task(work, loop=loop, **options)


def _listed(task: AnyTask, loop: asyncio.AbstractEventLoop, run: RunTasks) -> AnyTask:
    run.add(task, loop)
    return task


# ---- what they are blocked on ----


def _awaited_by(task: Value) -> Value:
    return getattr(task, "_fut_waiter", _UNKNOWN)


def _is_to_go_on(task: AnyTask) -> bool:
    awaited = _awaited_by(task)
    return awaited is None or (awaited is not _UNKNOWN and awaited.done())


def _not_completed_by(sources: Iterable[AnyFuture], futures: set[AnyFuture]) -> set[AnyFuture]:
    """The futures that something else than the sources may complete. Timers do not count."""
    found = dict.fromkeys(sources)
    ahead = [*found]  # from its end: a few tasks often tell all, and the waits under them nothing
    left = futures - found.keys()
    joins = _Joins()
    while left and ahead:
        for future in joins.completed_by(ahead.pop()):
            if future not in found:
                found[future] = None
                left.discard(future)
                ahead.append(future)
    return left


@dataclass(slots=True)
class _Join:
    """Futures that are completed when others are, and how many of those have not been found yet."""

    futures: Sequence[AnyFuture]
    missing: int

    @classmethod
    def of(cls, futures: Iterable[AnyFuture | None], missing: int) -> _Join:
        """What was read. Raises TypeError when it is not of these types."""
        return cls([future for future in futures if future is not None], int(missing))


class _Joins:
    """What is built on several futures. When it is known what completes each of those, it is of this too, not before:
    any of them may be enough to complete it.
    """

    def __init__(self) -> None:
        self._joins: dict[Function, _Join | None] = {}

    def completed_by(self, source: AnyFuture) -> Iterator[AnyFuture]:
        """What has been found when the source has. To be asked once for each."""
        callbacks: Sequence[tuple[Value, Context]] = getattr(source, "_callbacks", None) or ()
        for callback, _ in callbacks:
            kind = type(callback)
            if kind in _METHODS and _awaited_by(callback.__self__) is source:
                yield callback.__self__  # a task, listed or not
            elif kind in _READABLE:
                join = self._joins[callback] if callback in self._joins else self._read(callback)
                if join is not None:
                    join.missing -= 1
                    if join.missing == 0:
                        yield from join.futures

    def _read(self, callback: Function) -> _Join | None:
        """What asyncio has built with the callback. None when it is not asyncio's, or one that is not known here."""
        function = getattr(callback, "func", callback)
        read = _BUILT.get(f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}")
        try:
            join = None if read is None else read(_parts(callback))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            join = None
        self._joins[callback] = join
        return join


def _parts(callback: Function) -> Mapping[str, Value]:
    if isinstance(callback, partial):
        return {"waiter": callback.args[0]}
    if isinstance(callback, MethodType):
        return vars(callback.__self__)
    names, cells = callback.__code__.co_freevars, callback.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}


_BUILT: Final[Mapping[str, Callable[[Mapping[str, Value]], _Join]]] = {
    "asyncio.tasks.gather.<locals>._done_callback": lambda has: _Join.of(
        [has["outer"]], has["nfuts"] - has["nfinished"]
    ),
    "asyncio.tasks._wait.<locals>._on_completion": lambda has: _Join.of([has["waiter"]], has["counter"]),
    "asyncio.tasks.shield.<locals>._inner_done_callback": lambda has: _Join.of([has["outer"]], 1),
    "asyncio.taskgroups.TaskGroup._on_task_done": lambda has: _Join.of([has["_on_completed_fut"]], len(has["_tasks"])),
    # as_completed, up to 3.12 and from 3.13
    "asyncio.tasks.as_completed.<locals>._on_completion": lambda has: _Join.of(has["done"]._getters, len(has["todo"])),
    "asyncio.tasks._AsCompletedIterator._handle_completion": lambda has: _Join.of(
        has["_done"]._getters, len(has["_todo"])
    ),
    # wait_for in 3.11, and in all of them the wait for a task that it has cancelled
    "asyncio.tasks._release_waiter": lambda has: _Join.of([has["waiter"]], 1),
}
"""What a callback of asyncio completes, by its name: read from its closure, its object or its arguments."""
