"""list_runs: pages of runs, newest first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from redflow_server.domain.runs import RunPage, RunQuery
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    a_completion,
    claim_one,
    enqueue_one,
    everything,
    put_in_state,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand

EMPTY: Final = RunPage((), None)


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    """All runs are created in the same millisecond: order must not rest on times."""
    store.now_ms = START_MS


async def listed(store: Store, **query: Any) -> list[str]:  # Any: fields of RunQuery
    return [run.run_id for run in (await store.list_runs(RunQuery(**query))).runs]


async def follow(
    store: Store, query: RunQuery, between: Callable[[], Awaitable[None]] | None = None
) -> list[list[str]]:
    """All pages, by cursor, as ids; `between` happens after each of them."""
    pages: list[list[str]] = []
    while len(pages) < 100:
        page = await store.list_runs(query)
        pages.append([run.run_id for run in page.runs])
        if page.next_seq is None:
            return pages
        query = replace(query, before_seq=page.next_seq)
        if between is not None:
            await between()
    raise AssertionError("the pages do not end")


def flat(pages: list[list[str]]) -> list[str]:
    return [run_id for page in pages for run_id in page]


# ---- what is listed ----


@pytest.mark.parametrize("query", [RunQuery(), RunQuery(status=RunStatus.QUEUED), RunQuery(workflow="w")])
async def test_nothing_is_listed_where_there_is_nothing(store: Store, query: RunQuery) -> None:
    assert await store.list_runs(query) == EMPTY


async def test_the_newest_run_comes_first_whatever_its_state(store: Store) -> None:
    done = await start_one(store)
    await store.complete(a_completion(done))
    scheduled = await enqueue_one(store, available_at_ms=START_MS + 1000)
    running = await start_one(store)
    queued = await enqueue_one(store)
    assert await listed(store) == [queued, running.run_id, scheduled, done.run_id]


async def test_a_run_keeps_its_place_when_it_moves(store: Store) -> None:
    runs = [await enqueue_one(store) for _ in range(3)]
    await store.complete(a_completion(await claim_one(store)))
    assert await listed(store) == runs[::-1]


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.WAITING])
async def test_a_status_lists_exactly_its_runs(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    in_state: dict[RunStatus, str] = {}
    for each in (status for status in RunStatus if status is not RunStatus.WAITING):
        if each is not RunStatus.QUEUED:
            in_state[each] = await put_in_state(store, redis, keys, each)
    in_state[RunStatus.QUEUED] = await put_in_state(store, redis, keys, RunStatus.QUEUED)

    page = await store.list_runs(RunQuery(status=status))

    assert [(run.run_id, run.status) for run in page.runs] == [(in_state[status], status)]


async def test_status_and_workflow_together_list_what_is_both(store: Store) -> None:
    canceled_a, queued_a = await enqueue_one(store, workflow="a"), await enqueue_one(store, workflow="a")
    canceled_b, queued_b = await enqueue_one(store, workflow="b"), await enqueue_one(store, workflow="b")
    for run_id in (canceled_a, canceled_b):
        await request_cancel(store, run_id)

    assert await listed(store, workflow="a") == [queued_a, canceled_a]
    assert await listed(store, status=RunStatus.CANCELED) == [canceled_b, canceled_a]
    assert await listed(store, workflow="a", status=RunStatus.CANCELED) == [canceled_a]
    assert await listed(store, workflow="b", status=RunStatus.QUEUED) == [queued_b]
    assert await store.list_runs(RunQuery(workflow="a", status=RunStatus.FAILED)) == EMPTY
    assert await store.list_runs(RunQuery(workflow="c", status=RunStatus.QUEUED)) == EMPTY


@pytest.mark.parametrize("name", ["x:runs", "runs", "x:", ":x", "queued:x", "{x}", "%s", "🚀", "x y", "X"])
async def test_names_that_look_like_parts_of_keys_do_not_collide(store: Store, name: str) -> None:
    plain, odd = await enqueue_one(store, workflow="x"), await enqueue_one(store, workflow=name)
    assert await listed(store, workflow="x") == [plain]
    assert await listed(store, workflow=name) == [odd]
    assert await listed(store, workflow=name, status=RunStatus.QUEUED) == [odd]


async def test_runs_are_listed_with_their_record_and_without_payloads(store: Store) -> None:
    lease = await start_one(store, priority=3, max_attempts=4, idempotency_key="k")
    await store.complete(a_completion(lease, b'"large"'))

    [run] = (await store.list_runs(RunQuery())).runs

    full = await store.read_run(lease.run_id)
    assert full.output is not None
    assert run == replace(full, input=None, output=None, failure=None)


async def test_listing_writes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await enqueue_one(store)
    before = await everything(redis, keys)
    await store.list_runs(RunQuery())
    await store.list_runs(RunQuery(status=RunStatus.QUEUED, workflow="w"))
    assert await everything(redis, keys) == before


@pytest.mark.leaves_faults
async def test_an_entry_without_a_record_is_left_out_and_ends_no_listing(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    older = await enqueue_one(store)
    for number in range(3):
        for index in (keys.status(RunStatus.QUEUED), keys.workflow_status(RunStatus.QUEUED, "w")):
            await redis("ZADD", index, 1.5 + number / 10, f"run_ghost{number}")
    newer = await enqueue_one(store)
    for query in (RunQuery(limit=1), RunQuery(workflow="w", limit=2), RunQuery(status=RunStatus.QUEUED, limit=1)):
        assert flat(await follow(store, query)) == [newer, older]


# ---- pages ----


async def test_a_page_has_at_most_the_limit_and_starts_at_the_offset(store: Store) -> None:
    runs = [await enqueue_one(store) for _ in range(5)][::-1]
    assert await listed(store, limit=2) == runs[:2]
    assert await listed(store, limit=2, offset=2) == runs[2:4]
    assert await listed(store, limit=2, offset=4) == runs[4:]
    assert await listed(store, limit=2, offset=5) == []
    assert await listed(store, limit=100, offset=1000) == []
    assert await listed(store, limit=2, offset=1, status=RunStatus.QUEUED, workflow="w") == runs[1:3]


async def test_an_offset_counts_over_all_states_together(store: Store) -> None:
    runs: list[str] = []
    for number in range(6):
        runs.insert(0, await enqueue_one(store))
        if number % 2:
            await request_cancel(store, runs[0])
    assert [await listed(store, limit=2, offset=offset) for offset in (0, 1, 3)] == [runs[:2], runs[1:3], runs[3:5]]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 6, 7])
async def test_pages_follow_each_other_to_the_end(store: Store, count: int) -> None:
    runs = [await enqueue_one(store, workflow=f"w{number % 2}") for number in range(count)][::-1]
    for run_id in runs[::3]:
        await request_cancel(store, run_id)

    pages = await follow(store, RunQuery(limit=3))

    assert flat(pages) == runs
    assert all(len(page) == 3 for page in pages[:-1]), "only the last page may be short"


async def test_the_last_page_says_so(store: Store) -> None:
    for _ in range(2):
        await enqueue_one(store)
    assert (await store.list_runs(RunQuery(limit=3))).next_seq is None
    assert (await store.list_runs(RunQuery(limit=1))).next_seq is not None


async def test_runs_that_come_in_between_pages_do_not_shift_them(store: Store) -> None:
    runs = [await enqueue_one(store) for _ in range(7)][::-1]

    async def between() -> None:
        await enqueue_one(store)
        await enqueue_one(store)

    assert flat(await follow(store, RunQuery(limit=2), between)) == runs


@pytest.mark.parametrize("query", [RunQuery(limit=2), RunQuery(limit=2, workflow="w")])
async def test_runs_that_move_between_pages_are_listed_exactly_once(store: Store, query: RunQuery) -> None:
    runs = [await enqueue_one(store) for _ in range(12)][::-1]
    moved = iter((*runs[::-3], *runs[1::3]))

    async def between() -> None:
        await request_cancel(store, next(moved))
        await store.complete(a_completion(await claim_one(store)))

    assert flat(await follow(store, query, between)) == runs


async def test_runs_that_stay_in_the_filter_are_listed_exactly_once_while_others_leave_it(store: Store) -> None:
    runs = [await enqueue_one(store) for _ in range(20)][::-1]
    leaving = iter([runs[0], runs[4], runs[5], runs[1], runs[11], runs[12], runs[13], runs[19], runs[2]])
    left: list[str] = []

    async def between() -> None:
        left.append(next(leaving))
        await request_cancel(store, left[-1])

    found = flat(await follow(store, RunQuery(status=RunStatus.QUEUED, limit=3), between))

    assert len(found) == len(set(found))
    assert found == [run_id for run_id in runs if run_id in found], "still newest first"
    assert set(runs) - set(left) <= set(found)


async def test_runs_that_enter_the_filter_do_not_repeat_others(store: Store) -> None:
    runs = [await enqueue_one(store) for _ in range(12)][::-1]
    for run_id in runs[::2]:
        await request_cancel(store, run_id)
    entering = iter(runs[1::2])

    async def between() -> None:
        await request_cancel(store, next(entering))

    found = flat(await follow(store, RunQuery(status=RunStatus.CANCELED, limit=2), between))

    assert len(found) == len(set(found))
    assert set(runs[::2]) <= set(found)


async def test_many_runs_in_many_states_are_all_listed_in_pages(store: Store) -> None:
    runs: list[str] = []
    for number in range(150):
        runs.insert(0, await enqueue_one(store, workflow=f"w{number % 3}", available_at_ms=_later(number)))
        if number % 5 == 0:
            await request_cancel(store, runs[0])
    assert flat(await follow(store, RunQuery(limit=7))) == runs
    per_workflow = [flat(await follow(store, RunQuery(limit=7, workflow=f"w{number}"))) for number in range(3)]
    assert [len(found) for found in per_workflow] == [50, 50, 50]
    assert {run_id for found in per_workflow for run_id in found} == set(runs)


def _later(number: int) -> int | None:
    return START_MS + 1000 if number % 2 else None
