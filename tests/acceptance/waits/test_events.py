"""Runs that wait for events: each gets every event since it was created once, in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from redflow_sdk import Client, Context, Event, workflow
from tests.acceptance.waits.seen import has_begun_to_wait
from tests.conftest import StartWorker
from tests.eventually import eventually

PAID = "order.paid"


@dataclass
class Payment:
    amount: int


def payloads(*events: Event[object] | None) -> list[object]:
    return [event and event.payload for event in events]


async def test_an_event_ends_a_wait_that_has_begun_and_is_given_with_its_payload(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow
    async def bills(ctx: Context, order: str) -> tuple[str, str | None, int]:
        paid = await ctx.step.wait_for_event("paid", PAID, key=order, payload_type=Payment, timeout=10)
        assert paid is not None
        assert paid.time is not None
        return paid.name, paid.key, paid.payload.amount

    await start_worker(bills)
    handle = await client.start(bills, "o-1")
    await eventually(lambda: has_begun_to_wait(client, handle.id, "paid"))

    await client.emit_event(PAID, Payment(30), key="o-1")

    assert await handle.result(timeout=10) == (PAID, "o-1", 30)


async def test_events_that_come_before_the_waits_are_not_lost_and_none_is_seen_twice(
    client: Client, start_worker: StartWorker
) -> None:
    has_started, may_wait = asyncio.Event(), asyncio.Event()

    async def prepare() -> None:
        has_started.set()
        await may_wait.wait()

    @workflow
    async def bills(ctx: Context) -> list[object]:
        await ctx.step.run("prepare", prepare)
        first = await ctx.step.wait_for_event("first", PAID, timeout=10)
        second = await ctx.step.wait_for_event("second", PAID, timeout=10)
        third = await ctx.step.wait_for_event("third", PAID, timeout=0.2)
        return payloads(first, second, third)

    await start_worker(bills)
    await client.emit_event(PAID, 0)  # before there was the run
    handle = await client.start(bills)
    await has_started.wait()
    await client.emit_event(PAID, 1)
    await client.emit_event(PAID, 2)
    may_wait.set()

    assert await handle.result(timeout=10) == [1, 2, None]


async def test_a_wait_sees_no_event_of_another_name_or_key_and_none_whose_key_is_empty_instead_of_missing(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow
    async def bills(ctx: Context) -> list[object]:
        with_key = await ctx.step.wait_for_event("with key", PAID, key="a", timeout=10)
        with_empty = await ctx.step.wait_for_event("with empty key", PAID, key="", timeout=10)
        without = await ctx.step.wait_for_event("without key", PAID, timeout=10)
        return payloads(with_key, with_empty, without)

    await start_worker(bills)
    handle = await client.start(bills)
    await eventually(lambda: has_begun_to_wait(client, handle.id, "with key"))

    await client.emit_event("order.paid.late", "of another name", key="a")
    await client.emit_event(PAID, "of another key", key="b")
    await client.emit_event(PAID, "without key")
    await client.emit_event(PAID, "with an empty key", key="")
    await client.emit_event(PAID, "of its key", key="a")

    assert await handle.result(timeout=10) == ["of its key", "with an empty key", "without key"]


async def test_a_wait_that_is_not_met_in_time_gives_none_and_the_event_after_it_goes_to_the_next(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow
    async def bills(ctx: Context) -> list[object]:
        early = await ctx.step.wait_for_event("early", PAID, timeout=0.1)
        late = await ctx.step.wait_for_event("late", PAID, timeout=10)
        return payloads(early, late)

    await start_worker(bills)
    handle = await client.start(bills)
    await eventually(lambda: has_begun_to_wait(client, handle.id, "late"))

    await client.emit_event(PAID, "late")

    assert await handle.result(timeout=10) == [None, "late"]


async def test_of_two_waits_at_once_each_gets_an_event_of_its_own_the_first_the_first(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow
    async def bills(ctx: Context) -> list[object]:
        both = await asyncio.gather(
            ctx.step.wait_for_event("one", PAID, timeout=10), ctx.step.wait_for_event("two", PAID, timeout=10)
        )
        return payloads(*both)

    await start_worker(bills)
    handle = await client.start(bills)
    await eventually(lambda: has_begun_to_wait(client, handle.id, "one", "two"))

    await client.emit_event(PAID, 1)
    await client.emit_event(PAID, 2)

    assert await handle.result(timeout=10) == [1, 2]


async def test_a_run_that_an_event_has_started_waits_for_the_next_one(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(events=[PAID])
    async def follows(ctx: Context, number: int) -> list[object]:
        another = await ctx.step.wait_for_event("another", PAID, timeout=10)
        return [number, *payloads(another)]

    await start_worker(follows)
    [run_id] = await client.emit_event(PAID, 1)
    await eventually(lambda: has_begun_to_wait(client, run_id, "another"))
    [second] = await client.emit_event(PAID, 2)

    assert await client.handle(run_id).result(timeout=10) == [1, 2]
    assert await client.cancel_run(second)


async def test_an_event_that_is_repeated_by_its_idempotency_key_is_one(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow
    async def bills(ctx: Context) -> list[object]:
        first = await ctx.step.wait_for_event("first", PAID, timeout=10)
        second = await ctx.step.wait_for_event("second", PAID, timeout=0.3)
        return payloads(first, second)

    await start_worker(bills)
    handle = await client.start(bills)
    for _ in range(3):
        await client.emit_event(PAID, 1, idempotency_key="once")

    assert await handle.result(timeout=10) == [1, None]


async def test_an_event_of_one_run_reaches_every_other_that_waits_for_it(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow
    async def listens(ctx: Context) -> object:
        got = await ctx.step.wait_for_event("got", PAID, timeout=10)
        return got and got.payload

    @workflow
    async def speaks(ctx: Context) -> list[str]:
        await ctx.step.sleep("nap", 0.05)
        return await ctx.step.emit_event("speak", PAID, "word")

    await start_worker(listens, speaks, concurrency=2)
    handles = [await client.start(listens) for _ in range(20)]
    for handle in handles:
        await eventually(lambda run_id=handle.id: has_begun_to_wait(client, run_id, "got"))

    assert await client.execute(speaks, timeout=10) == []
    assert await asyncio.gather(*(handle.result(timeout=10) for handle in handles)) == ["word"] * 20
