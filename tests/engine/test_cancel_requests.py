"""A cancel for which Redis' answer is lost is answered as it was meant, with a request id of its caller or without."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from redflow_server.domain.states import RunStatus
from redflow_server.store.store import Store
from tests.builders import START_MS, enqueue_one
from tests.engine.parts import Engine
from tests.store.lossy_line import LossyLine
from tests.store.pipelines import WITHIN_S, pipeline_to


@pytest.mark.parametrize("request_id", ["request-1", ""])
async def test_a_cancel_whose_answer_was_lost_is_accepted(
    store: Store, redis_url: str, prefix: str, request_id: str
) -> None:
    store.now_ms = START_MS
    run_id = await enqueue_one(store)
    with tempfile.TemporaryDirectory(prefix="line-") as folder:
        line = LossyLine(redis_url, Path(folder))
        await line.open()
        async with pipeline_to(line.url, prefix) as (_, cut_off), asyncio.timeout(WITHIN_S):
            line.lose_answer_to("cancel")
            assert await Engine(cut_off).runs.cancel(run_id, "why", request_id)
        await line.close()
    assert line.cuts == 1
    assert (await store.read_run(run_id)).status is RunStatus.CANCELED
