"""The delays of attempts, which a script computes, and of the tries of a step, which a worker does, are the same."""

from __future__ import annotations

import pytest

from redflow_sdk._retries import NEVER_RETRIED, delay_before_next
from redflow_sdk.retry import RetryPolicy
from redflow_server.domain import registry
from redflow_server.domain.failures import NOT_RETRIED
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import START_MS, a_failed_attempt, a_workflow, claim_one, enqueue_one, register
from tests.redis_command import RedisCommand

MAX_ATTEMPTS = 10_000

POLICIES = {
    "the defaults": RetryPolicy(MAX_ATTEMPTS, jitter=0.0),
    "other delays": RetryPolicy(MAX_ATTEMPTS, initial=1.5, multiplier=3.0, maximum=100.0, jitter=0.0),
    "the same delay": RetryPolicy(MAX_ATTEMPTS, initial=2.0, multiplier=1.0, maximum=2.0, jitter=0.0),
    "a slow growth": RetryPolicy(MAX_ATTEMPTS, initial=1.0, multiplier=1.01, maximum=500_000.0, jitter=0.0),
    "a steep growth": RetryPolicy(MAX_ATTEMPTS, initial=0.001, multiplier=1000.0, maximum=3600.0, jitter=0.0),
    "no delay": RetryPolicy(MAX_ATTEMPTS, initial=0.0, multiplier=1000.0, maximum=3600.0, jitter=0.0),
}


async def delay_in_the_store(store: Store, redis: RedisCommand, keys: Keys, policy: RetryPolicy, attempt: int) -> int:
    """Milliseconds until the attempt after this one."""
    delays = (round(1000 * policy.initial), policy.multiplier, round(1000 * policy.maximum), policy.jitter)
    retry_policy = registry.RetryPolicy(*delays)
    await register(store, a_workflow(max_attempts=MAX_ATTEMPTS, retry_policy=retry_policy))
    run_id = await enqueue_one(store)
    await redis("HSET", keys.run(run_id), "failures", attempt - 1)
    lease = await claim_one(store)
    assert lease.attempt == attempt
    await store.fail(a_failed_attempt(lease, jitter=0.0))
    return ((await store.read_run(run_id)).available_at_ms or START_MS) - START_MS


@pytest.mark.parametrize("attempt", [1, 2, 3, 7, 60, 105, 1100, 5000])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
async def test_a_policy_means_the_same_delays_for_attempts_and_for_the_tries_of_a_step(
    store: Store, redis: RedisCommand, keys: Keys, policy: RetryPolicy, attempt: int
) -> None:
    store.now_ms = START_MS
    delay_s = delay_before_next(policy, attempt, ValueError())
    assert delay_s is not None
    assert await delay_in_the_store(store, redis, keys, policy, attempt) == pytest.approx(1000 * delay_s, abs=1)


def test_what_is_never_retried_is_the_same_for_attempts_and_for_the_tries_of_a_step() -> None:
    assert set(NEVER_RETRIED) == {kind.value for kind in NOT_RETRIED}
