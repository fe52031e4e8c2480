"""Gateways of one machine that share a port, between which the system spreads connections."""

from __future__ import annotations

import asyncio

from redflow_sdk import Client, Context, Worker, workflow
from tests.conftest import StartGateway
from tests.eventually import eventually


async def test_gateways_that_share_a_port_serve_whoever_comes_and_outlast_each_other(
    start_gateway: StartGateway,
) -> None:
    first = await start_gateway(shares_port=True)
    second = await start_gateway(shares_port=True, port=first.port)
    clients = [Client(f"127.0.0.1:{first.port}") for _ in range(30)]
    handles = [await client.start("shared", number, queue="q") for number, client in enumerate(clients)]
    waits = [asyncio.ensure_future(handle.result(timeout=30)) for handle in handles]
    await eventually(lambda: first._waiters.count + second._waiters.count == 30)
    assert first._waiters.count > 0, "the system spreads connections"
    assert second._waiters.count > 0
    await second.stop()

    @workflow(name="shared", queue="q")
    async def shared(ctx: Context, number: int) -> int:
        return number

    async with Worker(f"127.0.0.1:{first.port}", workflows=[shared]):
        assert await asyncio.gather(*waits) == list(range(30))
    for client in clients:
        await client.close()
