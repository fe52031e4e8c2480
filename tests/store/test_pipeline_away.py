"""The pipeline while there is no Redis, and at its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.states import RunStatus
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.wire import Dial
from tests.builders import (
    a_claim,
    a_run,
    enqueue_one,
)
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.store.pipelines import WITHIN_S, call_is_postponed, pipeline_to


async def test_calls_fail_at_once_while_redis_is_away_and_work_when_it_is_back(folder: Path) -> None:
    embedded = EmbeddedStore(folder / "data")
    socket = folder / "store.sock"

    def start() -> None:
        embedded.start()  # it listens on another socket after each start
        socket.unlink(missing_ok=True)
        socket.symlink_to(embedded.socket_path)

    start()
    try:
        async with pipeline_to(f"unix://{socket}", "away") as (pipeline, store):
            before = await enqueue_one(store)
            embedded.kill()
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(store.read_run(before), WITHIN_S)
            await eventually(lambda: pipeline.is_away, within=WITHIN_S)
            for _ in range(3):
                call = store.enqueue(a_run())
                assert call.done(), "nothing is awaited"
                assert isinstance(call.exception(), StoreUnavailable)

            start()
            await eventually(lambda: not pipeline.is_away, within=WITHIN_S)
            assert (await store.read_run(before)).status is RunStatus.QUEUED
            after = await enqueue_one(store)
            assert {run.run_id for run in (await store.claim(a_claim())).runs} == {before, after}
    finally:
        embedded.stop()


async def test_a_pipeline_does_not_start_without_redis(folder: Path) -> None:
    dial = Dial(f"unix://{folder}/nothing.sock")
    with pytest.raises(StoreUnavailable):
        await Pipeline(dial, load_scripts(), "p").start()
    await dial.close()


async def test_calls_under_way_fail_when_the_pipeline_stops(redis_url: str, prefix: str, redis: RedisCommand) -> None:
    async with pipeline_to(redis_url, prefix) as (pipeline, store):
        await redis("CLIENT", "PAUSE", 60_000, "WRITE")
        try:
            sent = store.enqueue(a_run())
            await call_is_postponed(redis)
            queued = store.enqueue(a_run())
            await pipeline.stop()
        finally:
            await redis("CLIENT", "UNPAUSE")
        for call in (sent, queued):
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(call, WITHIN_S)


async def test_a_call_after_the_end_fails_at_once_and_opens_no_connection(redis_url: str, prefix: str) -> None:
    async with pipeline_to(redis_url, prefix) as (pipeline, store):
        await pipeline.stop()
        call = store.enqueue(a_run())
        assert isinstance(call.exception(), StoreUnavailable)
        assert pipeline._dialing is None
