"""Races: the first of several steps wins, the others leave nothing behind, and every replay decides the same."""

from __future__ import annotations

import asyncio

from redflow_sdk import ChildFailedError, Client, Context, TokenFailedError, workflow
from tests.acceptance.waits.seen import has_begun_to_wait
from tests.conftest import StartWorker
from tests.eventually import eventually

EVENT = "race.event"


async def for_ever() -> None:
    await asyncio.Event().wait()


@workflow(name="race-child")
async def child(ctx: Context, length: float) -> str:
    await ctx.step.sleep("nap", length)
    return f"slept {length:g}"


async def steps_by_status(client: Client, run_id: str) -> dict[str, str]:
    return {step.name: step.status for step in await client.get_run_steps(run_id)}


async def test_of_an_event_and_a_time_whichever_comes_first_wins(client: Client, start_worker: StartWorker) -> None:
    @workflow
    async def race(ctx: Context, length: float) -> tuple[str, object]:
        first = await ctx.step.race(
            "event or late",
            event=ctx.step.wait_for_event("event", EVENT),
            late=ctx.step.sleep("late", length),
        )
        return first.winner, first.value and first.value.payload

    await start_worker(race)
    late = await client.start(race, 0.1)
    assert await late.result(timeout=10) == ("late", None)
    assert await steps_by_status(client, late.id) == {"event": "withdrawn", "late": "succeeded"}

    early = await client.start(race, 3600.0)
    await eventually(lambda: has_begun_to_wait(client, early.id, "event", "late"))
    await client.emit_event(EVENT, "here")
    assert await early.result(timeout=10) == ("event", "here")
    assert await steps_by_status(client, early.id) == {"event": "succeeded", "late": "withdrawn"}


async def test_an_event_that_ended_no_race_is_left_for_the_next_wait(client: Client, start_worker: StartWorker) -> None:
    @workflow
    async def race(ctx: Context) -> list[object]:
        lost = await ctx.step.race(
            "first", event=ctx.step.wait_for_event("lost", EVENT), late=ctx.step.sleep("late", 0.05)
        )
        got = await ctx.step.wait_for_event("got", EVENT, timeout=10)
        return [lost.winner, got and got.payload]

    await start_worker(race)
    handle = await client.start(race)
    await eventually(lambda: has_begun_to_wait(client, handle.id, "got"))
    await client.emit_event(EVENT, "left over")

    assert await handle.result(timeout=10) == ["late", "left over"]


async def test_a_child_that_has_lost_is_canceled_and_one_that_has_won_gives_its_output(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow
    async def race(ctx: Context) -> list[str]:
        won = await ctx.step.race(
            "child wins",
            child=ctx.step.run_workflow("quick", child, 0.05),
            other=ctx.step.run_workflow("slow", child, 3600.0),
        )
        late = await ctx.step.race(
            "time wins", child=ctx.step.run_workflow("slower", child, 3600.0), late=ctx.step.sleep("late", 0.05)
        )
        return [won.winner, won.value, late.winner]

    await start_worker(race, child, concurrency=2)

    assert await client.execute(race, timeout=10) == ["child", "slept 0.05", "late"]

    await eventually(lambda: children_have(client, "canceled", "canceled", "succeeded"))


async def children_have(client: Client, *statuses: str) -> bool:
    return sorted(run.status for run in await client.list_runs(workflow="race-child").page()) == sorted(statuses)


async def test_a_function_that_wins_withdraws_the_waits_and_one_that_loses_is_canceled(
    client: Client, start_worker: StartWorker
) -> None:
    calls: list[str] = []
    event_is_waited_for = asyncio.Event()

    async def quick() -> str:
        await event_is_waited_for.wait()
        calls.append("quick")
        return "done"

    async def slow() -> None:
        calls.append("slow")
        try:
            await for_ever()
        except asyncio.CancelledError:
            calls.append("slow is canceled")
            raise

    @workflow
    async def race(ctx: Context) -> list[object]:
        won = await ctx.step.race(
            "function wins",
            event=ctx.step.wait_for_event("never", EVENT),
            function=ctx.step.run("quick", quick),
        )
        lost = await ctx.step.race(
            "function loses", late=ctx.step.sleep("late", 0.1), function=ctx.step.run("slow", slow)
        )
        await ctx.step.sleep("replays what was decided", 0.05)
        return [won.winner, won.value, lost.winner]

    await start_worker(race)
    handle = await client.start(race)
    await eventually(lambda: has_step(client, handle.id, "never", "waiting"))
    event_is_waited_for.set()

    assert await handle.result(timeout=10) == ["function", "done", "late"]
    assert calls == ["quick", "slow", "slow is canceled"]
    statuses = await steps_by_status(client, handle.id)
    assert (statuses["never"], statuses["quick"], statuses["late"]) == ("withdrawn", "succeeded", "succeeded")


async def has_step(client: Client, run_id: str, name: str, status: str) -> bool:
    return (await steps_by_status(client, run_id)).get(name) == status


async def test_a_wait_that_has_lost_to_a_function_that_ends_at_once_leaves_the_event_to_the_next(
    client: Client, start_worker: StartWorker
) -> None:
    async def quick() -> None:
        """Ends before the wait beside it could begin."""

    @workflow
    async def race(ctx: Context) -> list[object]:
        won = await ctx.step.race(
            "function wins", event=ctx.step.wait_for_event("a", EVENT), function=ctx.step.run("quick", quick)
        )
        event = await ctx.step.wait_for_event("b", EVENT, timeout=10)
        return [won.winner, None if event is None else event.payload]

    await start_worker(race)
    handle = await client.start(race)
    await eventually(lambda: has_step(client, handle.id, "b", "waiting"))
    await client.emit_event(EVENT, 7)

    assert await handle.result(timeout=10) == ["function", 7]


async def test_functions_alone_race_and_the_decision_is_kept_over_replays(
    client: Client, start_worker: StartWorker
) -> None:
    calls: list[str] = []

    async def quick() -> str:
        calls.append("quick")
        return "quick"

    @workflow
    async def race(ctx: Context) -> list[str]:
        first = await ctx.step.race(
            "functions", slow=ctx.step.run("slow", for_ever), quick=ctx.step.run("quick", quick)
        )
        await ctx.step.sleep("nap", 0.05)
        return [first.winner, str(first.value)]

    await start_worker(race)

    assert await client.execute(race, timeout=10) == ["quick", "quick"]
    assert calls == ["quick"]


async def test_a_race_raises_what_its_first_member_raises(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="race-fails")
    async def fails(ctx: Context) -> None:
        raise LookupError("nothing there")

    def raises() -> None:
        raise ArithmeticError("no good")

    async def refuse(token: str) -> None:
        await client.fail_token(token, "refused")

    @workflow
    async def race(ctx: Context) -> list[str]:
        caught = []
        try:
            await ctx.step.race("child", child=ctx.step.run_workflow("fails", fails), late=ctx.step.sleep("l1", 3600))
        except ChildFailedError as error:
            caught.append(str(error.failure.cause and error.failure.cause.type))
        try:
            await ctx.step.race("function", function=ctx.step.run("raises", raises), late=ctx.step.sleep("l2", 3600))
        except ArithmeticError as error:
            caught.append(str(error))
        token = await ctx.step.token("token")
        await ctx.step.run("refuse", refuse, token)
        try:
            await ctx.step.race("token", token=token.result(), late=ctx.step.sleep("l3", 3600))
        except TokenFailedError as error:
            caught.append(error.failure.message)
        return caught

    await start_worker(race, fails, concurrency=2)

    assert await client.execute(race, timeout=10) == ["LookupError", "no good", "refused"]
