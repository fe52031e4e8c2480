"""The subscription of a gateway: it ends when it is told to, whatever it is doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from redflow_server.domain.leases import Stop, WaitOver
from redflow_server.store import wakeups
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from redflow_server.store.wakeups import Wakeups
from redflow_server.store.wire import Dial
from tests.builders import claim_one, enqueue_one
from tests.eventually import eventually
from tests.line import Line, to_redis
from tests.redis_command import RedisCommand
from tests.wait_builders import a_completed_token, a_token_wait, some_waits, token_of

PING_S: Final = 0.02
ROUNDS: Final = 60


class Listening:
    """A listener that notes what it hears of waits, and which lanes have filled."""

    def __init__(self) -> None:
        self.over: list[WaitOver] = []
        self.lanes: list[str] = []

    def lane_filled(self, name: str, change: int) -> None:
        self.lanes.append(name)

    def due(self, kind: str, at_ms: int) -> None:
        pass

    def stop_handler(self, stop: Stop) -> None:
        pass

    def wait_over(self, over: WaitOver) -> None:
        self.over.append(over)

    def finished(self, run_id: str) -> None:
        pass

    def may_have_missed(self) -> None:
        pass


async def test_it_ends_at_whatever_moment_it_is_stopped(
    redis_url: str, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it sends a ping, when the client library loses a cancellation now and then."""
    monkeypatch.setattr(wakeups, "PING_S", PING_S)
    dial = Dial(redis_url)
    for number in range(ROUNDS):
        subscription = Wakeups(dial, keys, "gateway-1", Listening())
        subscription.start()
        await eventually(lambda subscription=subscription: subscription.is_subscribed, every=0.001)  # type: ignore[misc]  # bound early
        until = asyncio.get_running_loop().time() + PING_S * (0.9 + 0.3 * number / ROUNDS)
        while asyncio.get_running_loop().time() < until:  # noqa: ASYNC110  # the moment is what varies
            await asyncio.sleep(0)

        await asyncio.wait_for(subscription.stop(), 5)
    await dial.close()


@pytest_asyncio.fixture
async def listening(redis_url: str, keys: Keys) -> AsyncIterator[Listening]:
    """The listener of gateway-1, subscribed."""
    dial, listening = Dial(redis_url), Listening()
    subscription = Wakeups(dial, keys, "gateway-1", listening)
    subscription.start()
    await eventually(lambda: subscription.is_subscribed)
    yield listening
    await subscription.stop()
    await dial.close()


async def test_a_subscription_that_is_cut_again_and_again_is_said_once_and_one_that_stays_away_is_said_all_the_same(
    redis_url: str, keys: Keys, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeups, "SAID_AGAIN_S", 3.0)
    async with Line(to_redis(redis_url)) as line:
        dial = Dial(f"redis://127.0.0.1:{line.port}")
        subscription = Wakeups(dial, keys, "gateway-1", Listening())
        subscription.start()
        for _ in range(3):
            await eventually(lambda: subscription.is_subscribed, every=0.001)
            line.cut()
            await eventually(lambda: not subscription.is_subscribed, every=0.001)
        assert caplog.text.count("no subscription to Redis") == 1
        await eventually(lambda: subscription.is_subscribed, every=0.001)

    await eventually(lambda: caplog.text.count("no subscription to Redis") == 2, within=10)
    await subscription.stop()
    await dial.close()


@pytest.mark.parametrize("size", [0, 4096])
async def test_a_small_outcome_comes_with_the_message_that_a_wait_is_over(
    store: Store, listening: Listening, size: int
) -> None:
    value = bytes(size)
    await enqueue_one(store)
    run = await claim_one(store)
    token = a_token_wait(run, "a step: 2:x")
    await store.step_wait(some_waits(run, token))

    await store.complete_token(a_completed_token(token_of(token), value))

    await eventually(lambda: listening.over)
    [step] = await store.read_steps(run.run_id, 10_000)
    assert step.output is not None
    assert step.output.data == value
    assert listening.over == [WaitOver(run.lease_token, "a step: 2:x", step)]


async def test_of_a_large_outcome_only_the_name_of_its_step_comes(store: Store, listening: Listening) -> None:
    await enqueue_one(store)
    run = await claim_one(store)
    token = a_token_wait(run)
    await store.step_wait(some_waits(run, token))

    await store.complete_token(a_completed_token(token_of(token), bytes(4097)))

    await eventually(lambda: listening.over)
    assert listening.over == [WaitOver(run.lease_token, token.name, None)]


@pytest.mark.parametrize("message", ["lane", "lane x y", "due x", "resolved t x", "resolved t 1:a1:|", "stop"])
async def test_a_message_that_no_gateway_sends_is_said_and_changes_nothing(
    listening: Listening, redis: RedisCommand, keys: Keys, caplog: pytest.LogCaptureFixture, message: str
) -> None:
    await redis("PUBLISH", keys.gateway("gateway-1"), message)
    await redis("PUBLISH", keys.wakeups, "lane 1 1:q:1:w")

    await eventually(lambda: listening.lanes == ["1:q:1:w"])
    assert not listening.over
    assert "a message that no gateway sends" in caplog.text
