"""A cancel for which Redis' answer is lost is answered as it was meant, with a request id of its caller or without."""

from __future__ import annotations

import asyncio

import pytest

from redflow_server.domain.states import RunStatus
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from tests.builders import START_MS, enqueue_one
from tests.engine.parts import Engine
from tests.line import Line, to_redis
from tests.store.pipelines import WITHIN_S, pipeline_to

CANCEL = load_scripts()["cancel"].sha


@pytest.mark.parametrize("request_id", ["request-1", ""])
async def test_a_cancel_whose_answer_was_lost_is_accepted(
    store: Store, redis_url: str, prefix: str, request_id: str
) -> None:
    store.now_ms = START_MS
    run_id = await enqueue_one(store)
    async with (
        asyncio.timeout(WITHIN_S),
        Line(to_redis(redis_url)) as line,
        pipeline_to(line.through(redis_url), prefix) as (_, cut_off),
    ):
        line.lose_reply_to(CANCEL)
        assert await Engine(cut_off).runs.cancel(run_id, "why", request_id)
    assert line.lost_replies == 1
    assert (await store.read_run(run_id)).status is RunStatus.CANCELED
