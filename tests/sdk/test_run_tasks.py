"""Which tasks a run has, and whether all of them are blocked on its waits, whatever asyncio has built on them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import itertools
import random
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from redflow_sdk._run_tasks import State, watch
from tests.eventually import eventually
from tests.sdk.run_scene import (
    FACTORIES,
    FORMS,
    LONG_S,
    Scene,
    Work,
    a_tree,
    by_as_completed,
    by_gather,
    by_gathers,
    by_group,
    by_shield,
    by_wait,
    by_wait_for,
    end_all,
    grow,
    hurries,
    leaves_of,
    naps,
    turn,
    with_leaf,
)

AnyFuture = asyncio.Future[int]
of_each_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__.removeprefix("by_"))


@pytest_asyncio.fixture(params=FACTORIES)
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    asyncio.get_running_loop().set_task_factory(FACTORIES[request.param])
    yield Scene()
    await end_all()


@of_each_form
async def test_a_run_is_at_rest_when_each_of_its_tasks_is_blocked_on_a_wait(form: Any, scene: Scene) -> None:
    root = scene.begin(form([scene.wait(), scene.wait(), scene.wait()]))
    for _ in range(3):
        assert await scene.settled() is State.AT_REST
        next(over for over in scene.waits if not over.done()).set_result(1)
        assert scene.standing.state is State.MOVING
    assert await asyncio.wait_for(root, 5) == 3


@of_each_form
@pytest.mark.parametrize("place", range(3))
async def test_it_is_held_when_one_of_them_is_blocked_on_something_else(form: Any, place: int, scene: Scene) -> None:
    works = [scene.wait(), scene.wait()]
    works.insert(place, naps(scene))
    scene.begin(form(works))
    assert await scene.settled() is State.HELD
    for over in scene.waits:
        over.set_result(1)
        assert await scene.settled() is State.HELD


@of_each_form
async def test_it_moves_when_one_of_them_is_to_take_its_next_step(form: Any, scene: Scene) -> None:
    scene.begin(form([scene.wait(), hurries(scene), naps(scene)]))
    assert await scene.settled() is State.MOVING


# ---- what is no task ----


async def first_of(awaitables: Sequence[AnyFuture]) -> int:
    done, _ = await asyncio.wait(awaitables, return_when=asyncio.FIRST_COMPLETED)
    return len(done)


async def a_shield_of_the_first(awaitables: Sequence[AnyFuture]) -> int:
    return await asyncio.shield(awaitables[0])


async def the_next_of(awaitables: Sequence[AnyFuture]) -> int:
    return await next(iter(asyncio.as_completed(awaitables)))


async def one_of_a_thread(awaitables: Sequence[AnyFuture]) -> int:
    return await asyncio.wrap_future(concurrent.futures.Future())


async def under_a_lock(awaitables: Sequence[AnyFuture]) -> int:
    """Its other task is held by the lock, which the one that waits has. That is not to be seen."""
    lock = asyncio.Lock()

    async def locked(awaitable: AnyFuture) -> int:
        async with lock:
            return await awaitable

    return await by_gather([locked(awaitable) for awaitable in reversed(awaitables)])


@pytest.mark.parametrize(
    "form", [by_gather, first_of, a_shield_of_the_first, the_next_of, by_wait_for, one_of_a_thread, under_a_lock]
)
async def test_a_future_of_somebody_else_holds_the_run_also_beside_a_wait(form: Any, scene: Scene) -> None:
    async def handler() -> int:
        scene.raw_futures.append(scene.loop.create_future())
        return int(await form([scene.raw_futures[0], asyncio.create_task(scene.wait())]))

    scene.begin(handler())
    assert await scene.settled() is State.HELD
    assert scene.standing.holder_name.startswith("root (") or form in (by_wait_for, under_a_lock)


async def test_what_goes_on_because_a_raw_await_has_ended_is_never_taken_for_at_rest(scene: Scene) -> None:
    went_on = asyncio.Event()

    async def goes_on() -> int:
        group = asyncio.gather(asyncio.shield(asyncio.gather(asyncio.shield(by_group([scene.raw()])))))
        await asyncio.wait([group, asyncio.create_task(scene.wait())], return_when=asyncio.FIRST_COMPLETED)
        went_on.set()
        return await scene.wait()

    scene.begin(by_gather([goes_on(), scene.wait()]))
    assert await scene.settled() is State.HELD
    scene.raw_futures[0].set_result(1)
    turns = 0
    while not went_on.is_set():
        assert scene.standing.state is not State.AT_REST, turns
        await turn()
        turns += 1
    assert turns > 5 and await scene.settled() is State.AT_REST


async def test_a_task_that_waits_although_it_is_cancelled_holds_nothing(scene: Scene) -> None:
    async def cleans_up() -> int:
        try:
            return await scene.raw()
        except asyncio.CancelledError:
            return await scene.wait()

    async def handler() -> int:
        task = asyncio.create_task(cleans_up())
        await turn(3)
        return await asyncio.wait_for(task, 0)

    scene.begin(handler())
    assert await scene.settled() is State.AT_REST


async def test_the_task_that_holds_the_run_can_be_named(scene: Scene) -> None:
    async def handler() -> int:
        return sum(await asyncio.gather(scene.wait(), asyncio.create_task(naps(scene), name="nap")))

    assert scene.standing.holder_name == ""
    scene.begin(handler())
    assert await scene.settled() is State.HELD
    assert scene.standing.holder_name == "nap (naps)"


# ---- trees ----


async def rest_with_all_but_the_raw(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    tree = [by_gather, a_tree(chance), "wait"]
    leaves = list(leaves_of(tree))
    root = scene.begin(grow(scene, with_leaf(tree, chance.choice(leaves), "raw")))
    assert await scene.settled() is State.HELD
    scene.raw_futures[0].set_result(1)
    chance.shuffle(scene.waits)
    for over in scene.waits:
        assert await scene.settled() is State.AT_REST
        over.set_result(1)
    assert await asyncio.wait_for(root, 5) == len(leaves)


@pytest.mark.parametrize("seed", range(25))
async def test_a_tree_is_at_rest_once_nothing_raw_is_in_it_and_then_ends_as_ever(seed: int, scene: Scene) -> None:
    await rest_with_all_but_the_raw(scene, seed)


def test_another_loop_makes_no_difference() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def in_a_scene(seed: int) -> None:
        await rest_with_all_but_the_raw(Scene(), seed)
        await end_all()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for seed in range(20):
            runner.run(in_a_scene(seed))


@pytest.mark.parametrize("form", [by_gather, by_group, by_wait, by_as_completed, by_wait_for, by_shield])
async def test_thousands_of_tasks_are_looked_at_in_one_go(form: Any) -> None:
    scene = Scene()
    root = scene.begin(form([scene.wait() for _ in range(5000)]))
    assert await scene.settled() is State.AT_REST
    for over in scene.waits[1:]:
        over.set_result(1)
    assert await scene.settled() is State.AT_REST
    scene.waits[0].set_result(1)
    assert await asyncio.wait_for(root, 10) == 5000


# ---- which tasks a run has ----


async def test_a_task_in_another_context_is_not_the_runs_and_one_in_its_own_is(scene: Scene) -> None:
    elsewhere, contexts = contextvars.copy_context(), []

    async def handler() -> int:
        contexts.append(contextvars.copy_context())
        scene.loop.create_task(naps(scene), context=elsewhere)
        return await scene.wait()

    scene.begin(handler())
    assert await scene.settled() is State.AT_REST, "what nobody awaits holds nobody"
    task = scene.loop.create_task(naps(scene), context=contexts[0])
    assert await scene.settled() is State.HELD and scene.standing.holder is task


async def test_a_group_with_a_task_in_another_context_holds_the_run(scene: Scene) -> None:
    elsewhere = contextvars.copy_context()

    async def handler() -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(naps(scene), context=elsewhere)
            group.create_task(scene.wait())
        return 1

    root = scene.begin(handler())
    assert await scene.settled() is State.HELD and scene.standing.holder is root


async def test_a_run_moves_before_its_first_task_and_has_no_more_once_it_is_left(scene: Scene) -> None:
    assert scene.standing.state is State.MOVING
    with scene.run:
        listed = asyncio.create_task(scene.wait())
    unlisted = asyncio.create_task(naps(scene))
    await turn()
    assert {*scene.run.tasks} == {asyncio.current_task(), listed} and not unlisted.done()


async def test_a_handler_may_be_thrown_away_in_any_context(scene: Scene) -> None:
    handler = scene._handle(scene.wait())
    contextvars.copy_context().run(handler.send, None)
    handler.close()


async def test_a_task_of_another_run_holds_the_run_that_awaits_it_and_no_other(scene: Scene) -> None:
    other = Scene()
    theirs = other.begin(by_gather([other.wait(), other.wait()]))
    scene.begin(by_gather([scene.wait(), asyncio.wait_for(theirs, LONG_S)]))
    assert (await scene.settled(), await other.settled()) == (State.HELD, State.AT_REST)


async def test_tasks_that_are_done_hold_nothing_and_are_let_go(scene: Scene) -> None:
    kept: list[asyncio.Task[int]] = []

    async def handler() -> int:
        kept.extend(asyncio.create_task(grow(scene, "turns")) for _ in range(3))
        await by_gather([grow(scene, "turns") for _ in range(10)])
        return await scene.wait()

    scene.begin(handler())
    assert await scene.settled() is State.AT_REST
    gc.collect()
    assert len({*scene.run.tasks} - {*kept}) == 1, "the root"


async def test_tasks_in_a_loop_of_a_thread_are_not_the_runs(scene: Scene) -> None:
    began, over = threading.Event(), threading.Event()

    async def in_thread() -> None:
        watch(asyncio.get_running_loop())
        nap = asyncio.create_task(naps(scene))
        began.set()
        await asyncio.get_running_loop().run_in_executor(None, over.wait)
        nap.cancel()

    async def handler() -> int:
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(asyncio.run, in_thread()))
        thread.start()
        try:
            return await scene.wait()
        finally:
            thread.join()

    scene.begin(handler())
    await eventually(began.is_set)
    state = await scene.settled()
    over.set()
    assert state is State.AT_REST


# ---- the factory ----


def unlisted(kind: str, work: Work) -> asyncio.Task[int]:
    if kind == "by itself":
        return asyncio.Task(work)
    asyncio.get_running_loop().set_task_factory(lambda loop, work, **options: asyncio.Task(work, loop=loop, **options))
    return asyncio.create_task(work)


@pytest.mark.parametrize("kind", ["by itself", "by a later factory"])
async def test_a_task_that_is_not_listed_counts_as_not_there_unless_it_is_awaited(kind: str, scene: Scene) -> None:
    tasks: list[asyncio.Task[int]] = []

    async def handler() -> int:
        tasks.append(unlisted(kind, naps(scene)))
        await unlisted(kind, by_gathers([scene.wait(), scene.wait()]))
        return await tasks[0]

    scene.begin(handler())
    assert await scene.settled() is State.AT_REST
    for over in scene.waits:
        over.set_result(1)
    assert await scene.settled() is State.HELD
    assert scene.standing.holder_name == "root (Scene._handle)"


async def test_the_factory_before_gets_what_it_would_have_got_and_is_called_once() -> None:
    loop, calls, counted = asyncio.get_running_loop(), [], itertools.count()

    def factory(*arguments: Any, **options: Any) -> asyncio.Task[Any]:
        next(counted)
        calls.append((arguments, options))
        return asyncio.Task(arguments[1], loop=arguments[0], **options)

    async def created() -> asyncio.Task[None]:
        context = contextvars.copy_context()
        calls.clear()
        task = loop.create_task(turn(), name="mine", context=context)
        [(arguments, options)] = calls
        assert arguments[0] is loop and options["context"] is context
        await task
        return task

    loop.set_task_factory(factory)
    before = await created(), [*calls[0][1]]
    watch(loop)
    installed = loop.get_task_factory()
    watch(loop)
    assert loop.get_task_factory() is installed
    after = await created(), [*calls[0][1]]
    assert [(task.get_name(), options) for task, options in (before, after)] == [("mine", before[1])] * 2
    assert type(after[0]) is type(before[0]) and next(counted) == 2


async def test_a_factory_may_make_what_is_no_task(scene: Scene) -> None:
    class Named(asyncio.Future[int]):
        def set_name(self, name: object) -> None:
            """3.13 demands it."""

    def factory(loop: asyncio.AbstractEventLoop, work: Work, **options: Any) -> Any:
        work.close()
        return Named(loop=loop)

    async def handler() -> int:
        scene.loop.set_task_factory(factory)
        watch(scene.loop)
        future = scene.loop.create_task(naps(scene))
        scene.loop.set_task_factory(None)
        await scene.wait()
        return await future

    root = scene.begin(handler())
    assert await scene.settled() is State.AT_REST
    scene.waits[0].set_result(1)
    assert await scene.settled() is State.HELD and scene.standing.holder is root


async def test_what_a_handler_awaits_fails_as_ever(scene: Scene) -> None:
    async def fails() -> int:
        await turn()
        raise LookupError

    async def handler() -> int:
        with pytest.raises(ExceptionGroup):
            await by_group([scene.wait(), fails(), naps(scene)])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scene.wait(), 0.001)
        return 7

    assert await asyncio.wait_for(scene.begin(handler()), 5) == 7
