"""What users may call things: anything from 1 to 256 bytes of text works and stays apart; the rest is refused."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from redflow_sdk import (
    Client,
    Context,
    InvalidInputError,
    RedflowError,
    RetryPolicy,
    RunFailedError,
    SessionRefusedError,
    Worker,
    Workflow,
    workflow,
)
from redflow_server.store.keys import Keys
from tests.conftest import StartWorker
from tests.redis_command import RedisCommand

ODD = {
    "a colon": "a:b",
    "only colons": ":::",
    "braces": "{a}{b}",
    "an open brace": "}{",
    "a space": " ",
    "spaces around": " a  b ",
    "an emoji": "🧾",
    "a joined emoji": "👩‍👩‍👧",
    "quotes": "\"'`",
    "a backslash": "\\n\\",
    "a pattern": "*?[a-z]",
    "a slash": "../a/b",
    "percent signs": "%s%00%.0f",
    "markup": "<b>&amp;</b>",
    "text from right to left": "\u202e\u05e9\u05dc\u05d5\u05dd",
    "a letter with a mark": "é",
    "a letter and a mark": "e\u0301",
    "a number": "0",
    "a negative number": "-1",
    "a length": "1:a",
    "a lane": "1:a:1:b",
    "the name of an index": "x:runs",
    "a status": "succeeded",
    "json": '{"a":[null]}',
    "256 letters": "x" * 256,
    "256 bytes": "🧾" * 64,
}
LONG = ["x" * 255, "x" * 254 + "y", "x" * 255 + "y"]

REFUSED = {
    "empty": ("", "must not be empty"),
    "257 letters": ("x" * 257, "must be at most 256 bytes"),
    "257 bytes": ("🧾" * 64 + "x", "must be at most 256 bytes"),
    "a line feed": ("a\nb", "must not contain control characters"),
    "a zero": ("a\0b", "must not contain control characters"),
    "a unit separator": ("a\x1fb", "must not contain control characters"),
    "a delete": ("a\x7fb", "must not contain control characters"),
    "a next line": ("a\x85b", "must not contain control characters"),
    "a lone surrogate": ("a\ud800b", "must not contain"),
}

odd = pytest.mark.parametrize("name", ODD.values(), ids=ODD.keys())
refused = pytest.mark.parametrize(("name", "rule"), REFUSED.values(), ids=REFUSED.keys())


def shows(text: str, name: str) -> bool:
    """Whether a message shows a name, up to where it may be shortened."""
    return any(form(name)[:20] in text for form in (ascii, repr))


def echo(name: str, queue: str = "default") -> Workflow[list[str], list[str]]:
    """Answers who it is, with what it was given as a step."""

    @workflow(name=name, queue=queue)
    async def handler(ctx: Context, input: list[str]) -> list[str]:
        kept = await ctx.step.run(name, lambda: input)
        return [ctx.run.workflow, ctx.run.queue, *kept]

    return handler


async def stored(redis: RedisCommand, keys: Keys) -> set[str]:
    """The keys that hold what users have made: not the gateway's own."""
    own = {keys.config, keys.reap_last, keys.reap_not_before, keys.sessions}
    names = set(await redis("KEYS", f"{keys.prefix}:*")) - own
    return {name for name in names if not name.startswith(keys.session(""))}


@odd
async def test_an_odd_name_works_end_to_end(name: str, client: Client, start_worker: StartWorker) -> None:
    echoes = echo(name, queue=name)
    await start_worker(echoes)

    handle = await client.start(echoes, [name], idempotency_key=name)

    assert await handle.result(timeout=5) == [name, name, name]
    run = await handle.get()
    assert (run.workflow, run.queue, run.idempotency_key) == (name, name, name)
    [step] = await client.get_run_steps(handle.id)
    assert (step.name, step.output) == (name, [name])
    assert [listed.id for listed in await client.list_runs(workflow=name).page()] == [handle.id]
    again = await client.start(name, [name], queue=name, idempotency_key=name)
    assert (again.id, again.created, again.input_differs) == (handle.id, False, False)
    assert await client.execute(name, ["by name"], timeout=5) == [name, name, "by name"]


async def test_workflows_with_odd_names_never_meet(client: Client, start_worker: StartWorker) -> None:
    names = [*ODD.values(), *LONG]
    await start_worker(*map(echo, names), concurrency=100)

    handles = {name: await client.start(name, [name]) for name in names}

    for name, handle in handles.items():
        assert await handle.result(timeout=10) == [name, "default", name]
        assert [run.id for run in await client.list_runs(workflow=name).page()] == [handle.id]


async def test_lanes_of_odd_names_never_meet(client: Client, start_worker: StartWorker) -> None:
    names = ["a", "a:b", "b:a", "a:", ":a", ":", "::", "1:a", "1:a:1:b", "3:a:b", "{a}", "a b", "a\u0301", "á"]
    for name in names:
        await start_worker(echo(name), queues=names, owner=name)
    pairs = list(product(names, names))

    handles = await asyncio.gather(*(client.start(name, [queue], queue=queue) for name, queue in pairs))

    assert len({handle.id for handle in handles}) == len(pairs)
    for (name, queue), handle in zip(pairs, handles, strict=True):
        assert await handle.result(timeout=20) == [name, queue, queue]


async def test_idempotency_keys_of_odd_names_never_meet(client: Client) -> None:
    names = [*ODD.values(), *LONG, "a", "a:", ":a", "b:c", "c"]
    pairs = list(product(names, names))

    handles = await asyncio.gather(
        *(client.start(name, [name, key], queue="q", idempotency_key=key) for name, key in pairs)
    )

    assert len({handle.id for handle in handles}) == len(pairs)
    assert all(handle.created for handle in handles)


async def test_steps_of_odd_names_never_meet(client: Client, start_worker: StartWorker) -> None:
    names = [*ODD.values(), *LONG]
    fresh: list[str] = []

    def value_of(name: str) -> str:
        fresh.append(name)
        return name

    @workflow(name="odd-steps", retry=RetryPolicy(max_attempts=2, initial=0.01))
    async def odd_steps(ctx: Context) -> list[str]:
        values = [await ctx.step.run(name, value_of, name) for name in names]
        if ctx.run.attempt == 1:
            raise RuntimeError("once more, from what is recorded")
        return values

    await start_worker(odd_steps)

    handle = await client.start(odd_steps)

    assert await handle.result(timeout=10) == names
    assert fresh == names
    assert [(step.name, step.output) for step in await client.get_run_steps(handle.id)] == list(
        zip(names, names, strict=True)
    )


@refused
@pytest.mark.parametrize("field", ["workflow", "queue", "idempotency_key"])
async def test_a_start_with_a_refused_name_says_why_and_stores_nothing(
    field: str, name: str, rule: str, client: Client, redis: RedisCommand, keys: Keys
) -> None:
    arguments = {"workflow": "fine", "queue": "fine", "idempotency_key": "fine", field: name}
    before = await stored(redis, keys)

    with pytest.raises(InvalidInputError) as refusal:
        await client.start(
            arguments["workflow"], queue=arguments["queue"], idempotency_key=arguments["idempotency_key"]
        )

    assert field in str(refusal.value)
    assert rule in str(refusal.value)
    assert shows(str(refusal.value), name)
    assert await stored(redis, keys) == before == set()


@refused
async def test_a_step_with_a_refused_name_is_not_run_and_fails_the_run_saying_why(
    name: str, rule: str, client: Client, start_worker: StartWorker
) -> None:
    calls: list[str] = []

    @workflow(name="odd-step")
    async def odd_step(ctx: Context) -> None:
        await ctx.step.run(name, calls.append, "called")

    await start_worker(odd_step)

    handle = await client.start(odd_step)
    with pytest.raises(RunFailedError):
        await handle.result(timeout=10)

    assert calls == []
    assert await client.get_run_steps(handle.id) == []
    failure = (await handle.get()).failure
    assert failure is not None
    assert "step" in failure.message
    assert any(word in failure.message for word in ("256 bytes", "control characters", "surrogate", rule))
    assert shows(failure.message, name)
    assert failure.kind != "non_deterministic"


def defined_and_served(target: str, field: str, name: str) -> Worker:
    odd = echo(name) if field == "name" else echo("odd", queue=name)
    return Worker(target, workflows=[echo("fine"), odd])


@refused
@pytest.mark.parametrize("field", ["name", "queue"])
async def test_a_workflow_with_a_refused_name_or_queue_is_not_registered_and_its_worker_is_told(
    field: str,
    name: str,
    rule: str,
    target: str,
    redis: RedisCommand,
    keys: Keys,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When it is defined, when the worker starts, or in the worker's log, where the other workflows are served."""
    try:
        async with defined_and_served(target, field, name):
            told = caplog.text
    except (ValueError, RedflowError) as refusal:
        told = str(refusal)

    assert field in told
    assert rule in told
    assert shows(told, name)
    assert await redis("SMEMBERS", keys.workflows) <= {"fine"}


@refused
async def test_a_worker_that_asks_for_a_refused_queue_is_refused_and_registers_nothing(
    name: str, rule: str, target: str, redis: RedisCommand, keys: Keys
) -> None:
    with pytest.raises((ValueError, SessionRefusedError)) as refusal:
        async with Worker(target, workflows=[echo("fine")], queues=["fine", name]):
            pass

    assert "queues" in str(refusal.value)
    assert rule in str(refusal.value)
    assert shows(str(refusal.value), name)
    assert await stored(redis, keys) == set()
