"""Three gateways on one Redis prefix, asked for the same at the same moment."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from redflow_sdk import Client, Context, Worker, workflow
from tests.conftest import StartGateway

GATEWAYS = 3
STARTS = 1000


async def test_a_thousand_starts_with_one_key_at_three_gateways_at_once_are_one_run_that_runs_once(
    start_gateway: StartGateway,
) -> None:
    ran: list[str] = []

    @workflow(name="once", queue="once")
    async def once(ctx: Context, number: int) -> int:
        ran.append(ctx.run.id)
        return number

    async with AsyncExitStack() as stack:
        targets = [f"127.0.0.1:{(await start_gateway()).port}" for _ in range(GATEWAYS)]
        clients = [await stack.enter_async_context(Client(target)) for target in targets]
        for target in targets:
            await stack.enter_async_context(Worker(target, workflows=[once]))
        starts = [clients[n % GATEWAYS].start(once, 7, idempotency_key="one") for n in range(STARTS)]
        handles = await asyncio.gather(*starts)
        assert await handles[0].result(timeout=20) == 7
        listed = [run.id async for run in clients[0].list_runs()]
    assert listed == [handles[0].id] == ran
    assert Counter((handle.id, handle.created) for handle in handles) == {
        (handles[0].id, True): 1,
        (handles[0].id, False): STARTS - 1,
    }
