"""The pipeline while there is no Redis, and at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.states import RunStatus
from redflow_server.embedded import EmbeddedStore
from redflow_server.store import pipeline as pipeline_module
from redflow_server.store import wire
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


# ---- one that takes connections and says nothing, as when its host is gone, or it is stopped ----


@pytest_asyncio.fixture
async def silent(folder: Path) -> AsyncIterator[str]:
    """Where such a one listens."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(say_nothing, folder / "silent.sock"):
        yield f"{folder}/silent.sock"


async def test_calls_do_not_wait_for_a_dial_that_is_not_answered(
    folder: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "PATIENCE_S", 0.2)
    socket = folder / "store.sock"
    with EmbeddedStore(folder / "data") as embedded:
        socket.symlink_to(embedded.socket_path)
        async with pipeline_to(f"unix://{socket}", "away") as (pipeline, store):
            run_id = await enqueue_one(store)
            socket.unlink()
            socket.symlink_to(silent)
            assert pipeline._wire is not None
            pipeline._wire.close()

            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(store.read_run(run_id), 3)

            assert pipeline.is_away
            call = store.read_run(run_id)
            assert call.done(), "nothing is awaited"
            assert isinstance(call.exception(), StoreUnavailable)


async def test_one_that_falls_silent_is_unfit_until_it_answers_though_its_connection_is_given_up_meanwhile(
    redis_url: str, prefix: str, redis: RedisCommand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("SILENT_S", 0.1), ("ANSWER_TIMEOUT_S", 0.3), ("PATIENCE_S", 0.3)):
        monkeypatch.setattr(pipeline_module, name, value)
    async with pipeline_to(redis_url, prefix) as (pipeline, store):
        await redis("CLIENT", "PAUSE", 60_000, "WRITE")
        try:
            call = store.enqueue(a_run())
            await eventually(lambda: not pipeline.is_fit, every=0.001)
            given_up = pipeline._wire
            await eventually(lambda: pipeline._wire is not given_up, every=0.001, within=WITHIN_S)
            assert not pipeline.is_fit, "a new connection has not answered yet"
        finally:
            await redis("CLIENT", "UNPAUSE")
        await asyncio.wait_for(call, WITHIN_S)
        assert pipeline.is_fit
    said = [record.message for record in caplog.records if record.name == "redflow.store"]
    assert said[:1] == ["redis has not answered for 0.1 s"]
    assert said.count("redis answers again") + said.count("redis is back") == 1


async def test_a_log_in_that_is_not_answered_ends(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the client library takes for a time-out by itself; some versions have none."""
    monkeypatch.setattr(wire, "REPLY_TIMEOUT_S", 0.1)
    dial = Dial(f"unix://user:secret@{silent}")
    async with asyncio.timeout(3):
        with pytest.raises(StoreUnavailable):
            await dial.wire()
    await dial.close()


async def test_why_redis_is_away_is_said_again_when_it_has_another_reason(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedStore(folder / "data") as embedded:
        socket = folder / "store.sock"
        socket.symlink_to(embedded.socket_path)
        async with pipeline_to(f"unix://{socket}", "away") as (pipeline, store):
            await enqueue_one(store)
            dial = Dial(embedded.url)
            async with dial.client() as client:
                socket.unlink()
                await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                store.enqueue(a_run()).add_done_callback(lambda call: call.exception())
                await eventually(lambda: pipeline.is_away, within=WITHIN_S)
                await client.execute_command("CONFIG", "SET", "requirepass", "secret")
                socket.symlink_to(embedded.socket_path)
                await eventually(lambda: "uthenticat" in caplog.text, within=WITHIN_S)
                await client.execute_command("CONFIG", "SET", "requirepass", "")
            await eventually(lambda: not pipeline.is_away, within=WITHIN_S)
            await dial.close()
    said = [record.message for record in caplog.records]
    assert said[-1] == "redis is back"
    assert all(line.startswith("redis is away: ") for line in said[:-1])
    assert all(line != earlier for earlier, line in pairwise(said)), "each reason once"
