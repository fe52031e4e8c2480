"""A gateway whose Redis is found by sentinels."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from redflow_sdk import Client, Context, Worker, workflow
from redflow_server.config import Config
from redflow_server.gateway import Gateway
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos.insist import insisted
from tests.chaos.sentinels import replicated
from tests.eventually import eventually

WITHIN_S = 40.0


@workflow(name="across")
async def across(ctx: Context, gate: str) -> str:
    """Has a step on record before the primary dies, and one after."""
    before = await ctx.step.run("before", lambda: "before")
    opened = await ctx.step.wait_for_event("opened", "opened", key=gate)
    return f"{before} {opened.payload if opened else None}"


async def _waits(run_id: str, client: Client) -> bool:
    return any(step.status == "waiting" for step in await client.get_run_steps(run_id))


async def test_runs_go_on_at_the_replica_that_takes_the_place_of_a_primary_that_was_killed(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * WITHIN_S), AsyncExitStack() as stack:
        them = await stack.enter_async_context(replicated(tmp_path, tmp_path / "log"))
        gateway = Gateway(Config(redis_url=them.url, port=0))
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        target = f"127.0.0.1:{gateway.port}"
        await stack.enter_async_context(Worker(target, workflows=[across]))
        client = await stack.enter_async_context(Client(target))
        run = await client.start(across, "gate")
        await eventually(lambda: _waits(run.id, client))
        before = await them.primary()

        await before.kill()

        await insisted(lambda: client.emit_event("opened", "after", key="gate", idempotency_key="once"))
        assert await run.result(timeout=WITHIN_S) == "before after"
        assert (await them.primary()).port != before.port
        dial = Dial(them.url)
        async with dial.client() as redis:
            assert await check(redis, Keys(Config().prefix)) == []
        await dial.close()
