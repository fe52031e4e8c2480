"""Values come back as they were given, to the last byte, whatever way they take."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

from redflow_sdk import Client, Context, Cron, RetryPolicy, Run, Workflow, converter, workflow
from redflow_server.store.keys import Keys
from tests.cli.command import redflow
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls
from tests.rpc.items import a_step
from tests.rpc.scripted_worker import ScriptedWorker, a_definition, an_open

Json = Any  # Any: JSON of all kinds


def nested(depth: int) -> Json:
    value: Json = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


AWKWARD: dict[str, Json] = {
    "2**53+1": 2**53 + 1,
    "2**63-1": 2**63 - 1,
    "-2**63": -(2**63),
    "2**64": 2**64,
    "10**40": 10**40,
    "0.1+0.2": 0.1 + 0.2,
    "-0.0": -0.0,
    "1.0": 1.0,
    "1": 1,
    "the smallest float": 5e-324,
    "the largest float": 1.7976931348623157e308,
    "an empty list": [],
    "an empty object": {},
    "an empty list in a list": [[]],
    "an empty list in an object": {"a": []},
    "an empty object in a list": [{}],
    "empty text": "",
    "None": None,
    "None in a list": [None],
    "None in an object": {"a": None},
    "False": False,
    "0": 0,
    "nested 50 deep": nested(50),
    "text beyond the first plane": "🧾𝄞\U0010ffff",
    "text with a zero": "a\0b",
    "text with all separators": "a\n\r\t\u2028\u2029\x7f\x85b",
    "text that looks like a number": "9007199254740993",
    "text with a combining mark": "e\u0301é",
    "names that are odd": {"": 1, " ": 2, "a.b": 3, "$": 4, "\0": 5, "🧾": 6, "__proto__": 7},
    "names out of order": {"b": 1, "a": 2},
}


def exactly(value: Json) -> str:
    """Tells 1 from 1.0 and True, and 0.0 from -0.0, which are equal."""
    return repr(value)


def soon() -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=50)


# ---- one by one ----


@workflow(name="keeps", events=["brought"], retry=RetryPolicy(max_attempts=2, initial=0.01))
async def keeps(ctx: Context, input: Json) -> Json:
    kept = await ctx.step.run("keep", lambda: input)
    if ctx.run.attempt == 1:
        raise RuntimeError("once more, from what is recorded")
    assert exactly(kept) == exactly(input)
    return kept


def passing_on(target: str) -> Workflow[Json, dict[str, Json]]:
    """A workflow whose runs have a value come back to them, or go on, by all ways that a run has."""

    @workflow(name="passes-on")
    async def passes_on(ctx: Context, input: Json) -> dict[str, Json]:
        async def brings(token: str) -> None:
            async with Client(target) as client:
                await client.complete_token(token, input)
                await client.emit_event("awaited", input, key=ctx.run.id)

        token = await ctx.step.token("token", timeout=10)
        await ctx.step.run("bring", brings, token)
        event = await ctx.step.wait_for_event("event", "awaited", key=ctx.run.id, timeout=10)
        child = await ctx.step.run_workflow("child", keeps, input)
        started = await ctx.step.start_workflow("start", keeps, input)
        emitted = await ctx.step.emit_event("emit", "brought", input)
        later = await ctx.step.schedule_event("schedule", "brought", input, available_at=soon())
        assert event is not None
        return {
            "by way": {"token": await token.result(), "event": event.payload, "child": child, "input": input},
            "runs": {"start": started, "emit": emitted[0], "schedule": later[0]},
        }

    return passes_on


async def by_every_way(client: Client, passes_on: Workflow[Json, dict[str, Json]], value: Json) -> dict[str, Json]:
    """What arrives of a value, by the way that it takes."""
    handle = await client.start(passes_on, value)
    delayed = await client.start(keeps, value, available_at=soon())
    [emitted] = await client.emit_event("brought", value)
    [later] = await client.schedule_event("brought", value, available_at=soon())
    found = await handle.result(timeout=20)
    runs = {**found["runs"], "client": delayed.id, "client's event": emitted, "client's later event": later}
    ended: dict[str, Run] = {}
    for way, run_id in runs.items():
        await client.handle(run_id).result(timeout=20)
        ended[way] = await client.get_run(run_id)
    outputs = {way: run.output for way, run in ended.items()}
    inputs = {f"{way}, read": run.input for way, run in ended.items()}
    steps = {f"{way}, step": (await client.get_run_steps(run.id))[0].output for way, run in ended.items()}
    return {**found["by way"], **outputs, **inputs, **steps}


async def test_an_awkward_value_survives_every_way_it_can_take(
    client: Client, target: str, start_worker: StartWorker
) -> None:
    passes_on = passing_on(target)
    await start_worker(keeps, passes_on, concurrency=100)
    arrived = await asyncio.gather(*(by_every_way(client, passes_on, value) for value in AWKWARD.values()))
    changed = {
        (name, way): exactly(value)
        for (name, given), ways in zip(AWKWARD.items(), arrived, strict=True)
        for way, value in ways.items()
        if exactly(value) != exactly(given)
    }
    assert changed == {}
    assert {len(ways) for ways in arrived} == {4 + 6 * 3}


async def test_a_value_is_stored_as_it_was_written_and_is_in_no_listing(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    await start_worker(keeps)
    handles = [await client.start(keeps, value) for value in AWKWARD.values()]
    for handle, value in zip(handles, AWKWARD.values(), strict=True):
        await handle.result(timeout=10)
        text = converter.encode(value).decode()
        assert await redis("HMGET", keys.data(handle.id), "inputJson", "outputJson") == [text, text]
        assert await redis("HGET", keys.steps(handle.id), "o:keep") == text
    listed = await client.list_runs(workflow="keeps").page(limit=len(handles))
    assert {run.id for run in listed} == {handle.id for handle in handles}
    assert {(run.input, run.output) for run in listed} == {(None, None)}


async def test_no_output_and_the_output_none_are_told_apart_by_the_status(
    client: Client, start_worker: StartWorker
) -> None:
    handle = await client.start(keeps, queue="default")
    before = await handle.get()
    await start_worker(keeps)
    assert await handle.result(timeout=5) is None
    after = await handle.get()
    assert ((before.status, before.output), (after.status, after.output)) == (("queued", None), ("succeeded", None))


# ---- all at once ----


@workflow(name="by-cron", cron=[Cron("* * * * * *", input=AWKWARD)])
async def by_cron(ctx: Context, input: Json) -> Json:
    return input


async def test_awkward_values_survive_a_schedule_and_the_command_line(
    client: Client, target: str, start_worker: StartWorker
) -> None:
    await start_worker(keeps, by_cron)
    text = converter.encode(AWKWARD)

    started = await redflow("run", "start", "keeps", "-", "--wait", "--target", target, stdin=text)
    assert exactly(converter.decode(started.out.encode())) == exactly(AWKWARD)

    refused = await redflow("run", "start", "keeps", "--input", '"\\ud800"', "--target", target)
    assert refused.error == "the input of workflow 'keeps' cannot be written as JSON: $ is text with a lone surrogate"

    async def succeeded() -> list[Run]:
        return await client.list_runs(workflow="by-cron", status="succeeded").page()

    run = await client.get_run((await eventually(succeeded))[0].id)
    assert exactly(run.input) == exactly(run.output) == exactly(AWKWARD)
    shown = await redflow("run", "get", run.id, "--target", target, "-o", "json")
    assert exactly([shown.json["input"], shown.json["output"]]) == exactly([AWKWARD, AWKWARD])


async def test_awkward_values_survive_the_loss_of_a_worker(
    client: Client, target: str, start_worker: StartWorker
) -> None:
    calls = Calls(target)
    lost = ScriptedWorker(calls.channel)
    await lost.open(an_open(a_definition("keeps", "default"), owner="default"))
    handle = await client.start(keeps, AWKWARD)
    assignment = await lost.take()
    assert assignment.input.data == converter.encode(AWKWARD)
    await lost.do(a_step(assignment, "keep", assignment.input.data))
    await lost.cut()
    await calls.close()
    await start_worker(keeps)
    assert exactly(await handle.result(timeout=10)) == exactly(AWKWARD)
    assert (await handle.get()).delivery_count == 3, "lost, failed, done"
