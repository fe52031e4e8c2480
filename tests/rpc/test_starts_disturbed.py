"""Starts while the store forgets its scripts, or does what nobody waits for any more: each call starts one run."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from redflow_sdk.proto.v1 import workflow_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.gateway import Gateway
from redflow_server.store import pipeline
from redflow_server.store.keys import Keys
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker
from tests.rpc.items import a_result, a_step
from tests.rpc.scripted_worker import a_definition
from tests.rpc.store_process import StoreProcess


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[StoreProcess]:
    with StoreProcess(tmp_path / "data") as store:
        yield store


@pytest.fixture
def redis_url(own_store: StoreProcess) -> str:
    return own_store.url


async def test_batches_of_500_do_not_notice_that_scripts_are_forgotten(
    calls: Calls, redis: RedisCommand, keys: Keys
) -> None:
    is_over = asyncio.Event()

    async def forget() -> int:
        times = 0
        while not is_over.is_set():
            await redis("SCRIPT", "FLUSH")
            times += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(is_over.wait(), 0.25)
        return times

    forgetting = asyncio.create_task(forget())
    batches = [await asyncio.gather(*(calls.start_many(500) for _ in range(2))) for _ in range(3)]
    is_over.set()

    assert await forgetting > 1
    run_ids = [run_id for pair in batches for batch in pair for run_id in batch]
    assert all(run_ids), "one was refused"
    assert len(set(run_ids)) == await redis("ZCARD", keys.status("queued")) == 3000


async def test_a_call_whose_answer_was_not_waited_for_has_started_one_run_at_most(
    gateway: Gateway, calls: Calls, open_worker: OpenWorker, redis: RedisCommand, keys: Keys
) -> None:
    """The store is stopped for longer than an answer may take: afterwards it does what is in its sockets, and what the
    gateway has sent again.
    """
    worker = await open_worker(
        "w",
        a_definition("listener", queue="other", event_triggers=[workflow_pb2.EventTrigger(event_name="e")]),
        slot_limit=20,
    )
    held = [await calls.start(), await calls.start()]
    taken = [await worker.take(), await worker.take()]
    await worker.say(capacity=pb.Capacity(slot_limit=0))
    await worker.quiet()
    pid = (await redis("INFO", "server"))["process_id"]
    step, result = a_step(taken[0]), a_result(taken[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "ANSWER_TIMEOUT_S", 0.3)
        os.kill(pid, signal.SIGSTOP)
        try:
            starts = [asyncio.ensure_future(calls.start(data=b"%d" % number)) for number in range(1000)]
            event = asyncio.ensure_future(calls.emit("e"))
            await worker.send(step, result)
            await eventually(lambda: gateway._pipeline._dialing is not None, saying="the answers are still waited for")
        finally:
            os.kill(pid, signal.SIGCONT)

    answers = await asyncio.gather(*starts, return_exceptions=True)
    assert len((await event).run_ids) == 1
    answered = [answer for answer in answers if isinstance(answer, str)]
    assert all(
        isinstance(answer, str)
        or (isinstance(answer, grpc.aio.AioRpcError) and answer.code() is grpc.StatusCode.UNAVAILABLE)
        for answer in answers
    )
    queued = await redis("ZRANGE", keys.status("queued"), 0, -1)
    inputs = Counter([await redis("HGET", keys.data(run_id), "inputJson") for run_id in queued])
    assert {count for data, count in inputs.items() if data != "{}"} == {1}, "a call has started two"
    assert set(answered) <= set(queued)
    assert len(answered) == len(set(answered))
    assert {(await worker.answer_to(item)).status for item in (step, result)} <= {
        pb.ITEM_STATUS_OK,
        pb.ITEM_STATUS_DUPLICATE,
    }
    assert {(await calls.run(run_id)).attempt for run_id in held} == {1}
