"""What a worker does with handlers that wait, as REDFLOW_WAITING and its arguments say."""

from __future__ import annotations

import pytest

from redflow_sdk import Client, Context, InvalidInputError, Worker, workflow
from tests.acceptance.waits.ways import VARIABLE, Way
from tests.conftest import StartWorker

BEGINNINGS = {Way.PARKING: 1, Way.NO_PARKING: 2, Way.ALWAYS_SUSPEND: 3}


async def test_handlers_begin_again_when_they_had_to_wait_when_they_have_waited_or_not_at_all(
    way: Way, client: Client, start_worker: StartWorker
) -> None:
    began: list[int] = []

    @workflow
    async def naps(ctx: Context) -> str:
        began.append(ctx.run.delivery)
        await ctx.step.sleep("over at once", 0)
        await ctx.step.sleep("short", 0.05)
        return "rested"

    await start_worker(naps)
    handle = await client.start(naps)

    assert await handle.result(timeout=10) == "rested"
    assert began == list(range(1, BEGINNINGS[way] + 1))
    run = await handle.get()
    assert (run.attempt, run.delivery_count, run.losses) == (1, BEGINNINGS[way], 0)


async def test_a_way_to_wait_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow
    async def naps(ctx: Context) -> None:
        await ctx.step.sleep("short", 0.05)

    monkeypatch.setenv(VARIABLE, "sometimes")
    with pytest.raises(
        InvalidInputError, match="REDFLOW_WAITING must be one of park, suspend, replay; got 'sometimes'"
    ):
        Worker(workflows=[naps])
