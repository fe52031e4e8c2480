"""The synchronous client on a real gateway and worker, which run beside the threads that it blocks."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue

import pytest

from redflow_sdk import CanceledError, Context, Cron, RunFailedError, SyncClient, workflow
from redflow_server.gateway import Gateway
from tests.acceptance.test_client_waits import doubles, streams
from tests.conftest import StartWorker
from tests.eventually import eventually


@dataclass
class Approval:
    by: str


tokens: SimpleQueue[str] = SimpleQueue()


@workflow(name="asks", events=["asked"], cron=[Cron("@monthly", id="monthly", input="cron")])
async def asks(ctx: Context, what: str) -> Approval:
    token = await ctx.step.token("approve", Approval)
    tokens.put(str(token))
    return await token.result()


async def test_threads_share_one_stream_and_each_gets_its_own_end(
    target: str, gateway: Gateway, start_worker: StartWorker
) -> None:
    await start_worker(doubles, concurrency=50)
    client = SyncClient(target)

    def execute(number: int) -> int | str:
        try:
            return client.execute(doubles, number, timeout=30)
        except RunFailedError as error:
            return str(error)

    def all_at_once() -> list[int | str]:
        with ThreadPoolExecutor(32) as threads:
            return list(threads.map(execute, range(320)))

    answers = await asyncio.to_thread(all_at_once)
    failed = answers.pop(13)
    assert answers == [2 * number for number in range(320) if number != 13]
    first, second = str(failed).splitlines()
    assert first.startswith("Run failed: LookupError: no such number (workflow doubles, run run_")
    assert "error.failure.traceback" in second and "redflow run get run_" in second
    assert streams() == 1
    assert gateway._waiters.count == 0
    await asyncio.to_thread(client.close)
    await eventually(lambda: streams() == 0)


async def test_runs_are_started_watched_and_canceled(target: str, start_worker: StartWorker) -> None:
    await start_worker(asks)

    def script() -> None:
        with SyncClient(target) as client:
            handle = client.start(asks, "one", idempotency_key="k")
            assert client.start(asks, "two", idempotency_key="k").input_differs
            client.complete_token(tokens.get(timeout=10), Approval("Ada"))
            assert handle.result(timeout=10) == Approval("Ada")
            assert handle.get().status == "succeeded"
            assert [step.name for step in client.get_run_steps(handle.id)] == ["approve"]

            refused = client.start(asks, "three")
            client.fail_token(tokens.get(timeout=10), "too dear")
            with pytest.raises(RunFailedError, match="too dear"):
                refused.result(timeout=10)

            left = client.start(asks, "four")
            tokens.get(timeout=10)
            assert client.wait_run(left.id, 0.1) is None
            assert client.cancel_run(left.id, reason="customer left")
            with pytest.raises(CanceledError, match="customer left"):
                left.result(timeout=10)
            assert not client.handle("run_nope").cancel()
            assert {run.id for run in client.list_runs(workflow="asks")} == {handle.id, refused.id, left.id}

    await asyncio.to_thread(script)


async def test_events_start_runs_and_it_sees_what_is_there_to_run_them(target: str, start_worker: StartWorker) -> None:
    await start_worker(asks)

    def script() -> None:
        with SyncClient(target) as client:
            [run_id] = client.emit_event("asked", "one", idempotency_key="k")
            assert client.emit_event("asked", "one", idempotency_key="k") == [run_id]
            [later] = client.schedule_event("asked", "two", available_at=datetime.now(UTC) + timedelta(hours=1))
            assert client.get_run(later).status == "scheduled"
            assert client.cancel_run(run_id) and client.cancel_run(later)

            assert [schedule.cron.id for schedule in client.list_schedules(workflow="asks")] == ["monthly"]
            assert client.get_workflow("asks").events == ("asked",)
            assert [one.name for one in client.list_workflows()] == ["asks"]
            assert [worker.workflows for worker in client.list_workers()] == [("asks",)]
            assert sum(client.stats().runs.values()) == 2

    await asyncio.to_thread(script)
