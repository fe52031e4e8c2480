"""A run of a workflow that nobody knows does not wait for ever where a worker asked for its queue by name."""

from __future__ import annotations

from redflow_sdk import Client, Context, workflow
from tests.conftest import StartWorker
from tests.eventually import eventually

EARLIEST_S = 3.0
LATEST_S = 6.0


@workflow(name="known", queue="asked-for")
async def known(ctx: Context) -> str:
    return "done"


@workflow(name="elsewhere", queue="asked-for")
async def elsewhere(ctx: Context) -> str:
    return "never"


@workflow(name="own", queue="own")
async def own(ctx: Context) -> str:
    return "done"


async def test_a_run_started_by_name_fails_within_seconds_and_one_started_by_its_definition_waits(
    client: Client, start_worker: StartWorker
) -> None:
    await start_worker(known, queues=["asked-for"])
    await start_worker(own, owner="owner-2")
    by_name = await client.start("nobody", queue="asked-for")
    by_definition = await client.start(elsewhere)
    in_a_queue_that_nobody_named = await client.start("nobody", queue="own")

    async def has_failed() -> bool:
        return (await by_name.get()).status == "failed"

    await eventually(has_failed, within=LATEST_S + 1, every=0.1)

    run = await by_name.get()
    assert run.failure is not None
    assert (run.failure.kind, run.attempt, run.started_at) == ("unknown_workflow", 1, None)
    assert run.finished_at is not None
    assert EARLIEST_S <= (run.finished_at - run.created_at).total_seconds() <= LATEST_S
    for handle in (by_definition, in_a_queue_that_nobody_named):
        assert (await handle.get()).status == "queued"
    for served in (known, own):
        assert await client.execute(served, timeout=5) == "done"
