"""The pipeline while Redis reads its data after a start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.states import RunStatus
from redflow_server.embedded import find_server
from redflow_server.store import pipeline as pipeline_module
from redflow_server.store.wire import Dial
from tests.builders import a_run, enqueue_one
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.store.pipelines import WITHIN_S, pipeline_to

KEYS = 300
SLOWLY = ("--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024")


@asynccontextmanager
async def a_server(folder: Path, *settings: str) -> AsyncIterator[None]:
    """One with its data in the folder; it may not have read them yet."""
    socket = folder / "s.sock"
    place = ("--port", "0", "--unixsocket", str(socket), "--dir", str(folder))
    process = await asyncio.create_subprocess_exec(find_server(), *place, *settings, stdout=asyncio.subprocess.DEVNULL)
    try:
        await eventually(socket.exists, within=WITHIN_S)
        yield
    finally:
        process.kill()
        await process.wait()
        socket.unlink(missing_ok=True)


async def test_calls_are_refused_until_it_has_read_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline_module, "PATIENCE_TRIES", 0)
    url = f"unix://{folder}/s.sock"
    async with AsyncExitStack() as stack:
        dial = Dial(url)
        async with a_server(folder):
            await eventually(lambda: _answers(dial), within=WITHIN_S)
            pipeline, store = await stack.enter_async_context(pipeline_to(url, "loading"))
            run_id = await enqueue_one(store)
            async with dial.client() as client:
                redis = RedisCommand(client)
                for number in range(KEYS):
                    await redis("SET", f"key {number}", "x" * 200)
                await redis("SAVE")
            await dial.close()
        async with a_server(folder, *SLOWLY):
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(store.read_run(run_id), WITHIN_S)
            await eventually(lambda: "LOADING" in caplog.text, within=WITHIN_S)
            assert isinstance(store.enqueue(a_run()).exception(), StoreUnavailable)
            await eventually(lambda: not pipeline.is_away, within=2 * WITHIN_S)
            assert (await store.read_run(run_id)).status is RunStatus.QUEUED
            assert caplog.records[-1].message == "redis is back"


async def _answers(dial: Dial) -> bool:
    async with dial.client() as client:
        try:
            return bool(await client.ping())
        except RedisError:
            return False
