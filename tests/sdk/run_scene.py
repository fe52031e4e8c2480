"""A run at work that no gateway knows, and all that asyncio builds on tasks, for its handler."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redflow_sdk._run_tasks import RunTasks, Standing, State, watch

Work = Coroutine[Any, Any, int]
Tree = Any  # a leaf, or a list of a form and its branches, which are trees
LONG_S = 3600
TURNS = 40
"""More than any handler here needs to come to rest."""


class Scene:
    """A run at work on the running loop, with all that its handler awaits."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        watch(self.loop)
        self.run = RunTasks()
        self.waits: list[asyncio.Future[int]] = []
        self.raw_futures: list[asyncio.Future[int]] = []

    def begin(self, work: Work) -> asyncio.Task[int]:
        return self.loop.create_task(self._handle(work), name="root")

    async def _handle(self, work: Work) -> int:
        with self.run:
            return await work

    async def wait(self) -> int:
        self.waits.append(self.loop.create_future())
        return await self.waits[-1]

    async def raw(self) -> int:
        self.raw_futures.append(self.loop.create_future())
        return await self.raw_futures[-1]

    @property
    def standing(self) -> Standing:
        return self.run.standing([over for over in self.waits if not over.done()])

    async def settled(self) -> State:
        await turn(TURNS)
        return self.standing.state


async def turn(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def naps(scene: Scene) -> int:
    await asyncio.sleep(LONG_S)
    return 1


async def hurries(scene: Scene) -> int:
    while True:
        await turn()


def python_task(loop: asyncio.AbstractEventLoop, work: Work, **options: Any) -> Any:
    return asyncio.tasks._PyTask(work, loop=loop, **options)  # type: ignore[attr-defined]  # what C tasks stand for


FACTORIES: dict[str, Any] = {"default": None}
if sys.version_info < (3, 14):  # from then on they are none to `asyncio.current_task`
    FACTORIES["in Python"] = python_task
if sys.version_info >= (3, 12):
    FACTORIES["eager"] = asyncio.eager_task_factory


async def end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


# ---- what asyncio builds: each begins all works, and gives the sum of what they give ----


async def by_gather(works: Sequence[Work]) -> int:
    return sum(await asyncio.gather(*works))


async def by_patient_gather(works: Sequence[Work]) -> int:
    async def fails() -> int:
        raise LookupError

    first, *rest = await asyncio.gather(fails(), *works, return_exceptions=True)
    assert isinstance(first, LookupError)
    return sum(value for value in rest if isinstance(value, int))


async def by_gathers(works: Sequence[Work]) -> int:
    """No task between the futures of several of them. A future may stand in several, and more than once."""
    tasks = [asyncio.ensure_future(work) for work in works]
    inner = asyncio.gather(*tasks)
    await asyncio.gather(asyncio.gather(inner, *tasks, *tasks), inner)
    return sum(inner.result())


async def by_group(works: Sequence[Work]) -> int:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
    return sum(task.result() for task in tasks)


@asynccontextmanager
async def own_group() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group


async def by_group_in_generator(works: Sequence[Work]) -> int:
    async with own_group() as group:
        tasks = [group.create_task(work) for work in works]
    return sum(task.result() for task in tasks)


async def by_wait(works: Sequence[Work]) -> int:
    done, _ = await asyncio.wait([asyncio.create_task(work) for work in works], timeout=LONG_S)
    return sum(task.result() for task in done)


async def by_wait_for_first(works: Sequence[Work]) -> int:
    total, pending = 0, {asyncio.create_task(work) for work in works}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        total += sum(task.result() for task in done)
    return total


async def by_shield(works: Sequence[Work]) -> int:
    return sum([await shielded for shielded in [asyncio.shield(work) for work in works]])


async def by_wait_for(works: Sequence[Work]) -> int:
    return sum(await asyncio.gather(*(asyncio.wait_for(work, LONG_S) for work in works)))


async def by_wait_for_shield(works: Sequence[Work]) -> int:
    tasks = [asyncio.create_task(work) for work in works]
    return sum([await asyncio.wait_for(asyncio.shield(task), LONG_S) for task in tasks])


async def by_timeout(works: Sequence[Work]) -> int:
    async def limited(work: Work) -> int:
        async with asyncio.timeout(LONG_S):
            return await work

    return sum(await asyncio.gather(*(limited(work) for work in works)))


async def by_tasks(works: Sequence[Work]) -> int:
    return sum([await task for task in [asyncio.create_task(work) for work in works]])


async def by_as_completed(works: Sequence[Work]) -> int:
    return sum([await each for each in asyncio.as_completed(works, timeout=LONG_S)])


async def by_gathered_as_completed(works: Sequence[Work]) -> int:
    return sum(await asyncio.gather(*asyncio.as_completed(works)))


async def by_async_as_completed(works: Sequence[Work]) -> int:
    return sum([each.result() async for each in asyncio.as_completed(works)])  # type: ignore[attr-defined]  # of 3.13


FORMS: list[Callable[[Sequence[Work]], Work]] = [
    *(by_gather, by_patient_gather, by_gathers, by_group, by_group_in_generator, by_wait, by_wait_for_first),
    *(by_shield, by_wait_for, by_wait_for_shield, by_timeout, by_tasks, by_as_completed, by_gathered_as_completed),
    *([by_async_as_completed] if sys.version_info >= (3, 13) else []),
]


# ---- trees of them ----


def a_tree(chance: random.Random, depth: int = 0) -> Tree:
    if depth < 5 and chance.random() < 1 - 0.17 * depth:
        return [chance.choice(FORMS), *(a_tree(chance, depth + 1) for _ in range(chance.randint(1, 3)))]
    return chance.choice(("wait", "wait", "wait", "turns"))


def leaves_of(tree: Tree, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if isinstance(tree, str):
        yield path
    else:
        for place, branch in enumerate(tree[1:], 1):
            yield from leaves_of(branch, (*path, place))


def with_leaf(tree: Tree, path: tuple[int, ...], leaf: str) -> Tree:
    if not path:
        return leaf
    place, *rest = path
    return [with_leaf(branch, tuple(rest), leaf) if at == place else branch for at, branch in enumerate(tree)]


async def grow(scene: Scene, tree: Tree) -> int:
    match tree:
        case "wait":
            return await scene.wait()
        case "raw":
            return await scene.raw()
        case "turns":
            await turn(3)
            return 1
    form, *branches = tree
    return int(await form([grow(scene, branch) for branch in branches]))
