"""A client that waits for many runs at once does so on one stream, and each wait ends by itself."""

from __future__ import annotations

import asyncio

import pytest

from redflow_sdk import Client, Context, RunFailedError, RunNotFoundError, UnavailableError, workflow
from redflow_sdk.worker import Worker
from redflow_server.gateway import Gateway
from tests.conftest import StartGateway, StartWorker
from tests.eventually import eventually

EXECUTE_RUNS = "[/redflow.api.v1.RunService/ExecuteRuns]"


def streams() -> int:
    """The streams of ExecuteRuns that gateways serve: gRPC names the task of each handler by its method."""
    return sum(EXECUTE_RUNS in task.get_name() for task in asyncio.all_tasks())


@workflow(name="doubles")
async def doubles(ctx: Context, number: int) -> int:
    if number == 13:
        raise LookupError("no such number")
    return 2 * number


async def test_hundreds_are_waited_for_on_one_stream_and_each_gets_its_own_end(
    client: Client, gateway: Gateway, start_worker: StartWorker
) -> None:
    await start_worker(doubles, concurrency=50)
    executions = [client.execute(doubles, number, timeout=30) for number in range(300)]

    answers = await asyncio.gather(*executions, return_exceptions=True)

    assert isinstance(answers[13], RunFailedError)
    assert [answer for number, answer in enumerate(answers) if number != 13] == [
        2 * number for number in range(300) if number != 13
    ]
    assert streams() == 1
    assert gateway._waiters.count == 0


async def test_several_may_wait_for_one_run_and_one_of_them_give_up(
    client: Client, gateway: Gateway, start_worker: StartWorker
) -> None:
    handle = await client.start(doubles, 4)
    waits = [asyncio.ensure_future(handle.result(timeout=20)) for _ in range(3)]
    await eventually(lambda: gateway._waiters.count == 1)
    waits[0].cancel()
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0.2)
    assert gateway._waiters.count == 1, "the others still wait"

    await start_worker(doubles)

    assert await asyncio.gather(*waits[1:]) == [8, 8]


async def test_what_nobody_waits_for_any_more_is_forgotten_at_the_gateway(client: Client, gateway: Gateway) -> None:
    handles = [await client.start(doubles, number) for number in range(20)]
    waits = [asyncio.ensure_future(handle.result()) for handle in handles]
    await eventually(lambda: gateway._waiters.count == 20)

    for wait in waits[:15]:
        wait.cancel()

    await eventually(lambda: gateway._waiters.count == 5)
    for wait in waits[15:]:
        wait.cancel()
    await eventually(lambda: gateway._waiters.count == 0)


async def test_a_run_that_does_not_exist_is_refused_beside_others_that_do(
    client: Client, start_worker: StartWorker
) -> None:
    await start_worker(doubles)
    handle = await client.start(doubles, 1)
    found, missing = await asyncio.gather(
        handle.result(timeout=10), client.handle("run_there_is_none").result(timeout=10), return_exceptions=True
    )
    assert found == 2
    assert isinstance(missing, RunNotFoundError)
    assert "run_there_is_none" in str(missing)


async def test_waits_outlast_a_gateway_that_goes_and_comes_back(start_gateway: StartGateway) -> None:
    first = await start_gateway()
    async with Client(f"127.0.0.1:{first.port}") as client:
        handles = [await client.start(doubles, number) for number in range(10)]
        waits = [asyncio.ensure_future(handle.result(timeout=60)) for handle in handles]
        await eventually(lambda: first._waiters.count == 10)
        await first.stop()

        second = await start_gateway(port=first.port)

        await eventually(lambda: second._waiters.count == 10, within=20)
        worker = Worker(f"127.0.0.1:{second.port}", workflows=[doubles])
        await worker.start()
        assert await asyncio.gather(*waits) == [2 * number for number in range(10)]
        await worker.stop()


async def test_a_client_that_is_closed_leaves_nobody_waiting(client: Client, gateway: Gateway) -> None:
    handle = await client.start(doubles, 1)
    waiting = asyncio.ensure_future(client.wait_run(handle.id, 40))
    await eventually(lambda: gateway._waiters.count == 1)

    await client.close()

    with pytest.raises(UnavailableError):
        await asyncio.wait_for(waiting, 5)
    await eventually(lambda: streams() == 0)
