"""A Redis that comes back without its last moments, as after a crash of its host or a failover: what becomes of what
was acknowledged in them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from redflow_server.domain.errors import RunNotFound
from redflow_server.domain.leases import Outcome
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
from tests.builders import (
    START_MS,
    a_completion,
    a_record,
    a_run,
    a_step,
    a_workflow,
    an_event,
    claim_one,
    enqueue_one,
    let_leases_expire,
    register,
    request_cancel,
    start_one,
)

GoBack = Callable[[], Awaitable[None]]
Remember = Callable[[], Awaitable[GoBack]]
FOREVER: Final = 0


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


@pytest.fixture
def remember(redis_url: str, keys: Keys) -> Remember:
    """Keeps what is stored now; what it gives makes the store be as it was then."""

    async def names(dial: Dial) -> list[bytes]:
        async with dial.client() as client:
            return [name async for name in client.scan_iter(match=f"{keys.prefix}:*")]

    async def keep() -> GoBack:
        dial = Dial(redis_url)
        async with dial.client() as client:
            kept = {name: await client.dump(name) or b"" for name in await names(dial)}

        async def go_back() -> None:
            async with dial.client() as client:
                await client.delete(*await names(dial))
                for name, content in kept.items():
                    await client.restore(name, FOREVER, content)
            await dial.close()

        return go_back

    return keep


async def test_a_run_that_ended_in_them_goes_on_from_the_steps_that_are_left(store: Store, remember: Remember) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a", b"1")))
    go_back = await remember()
    await store.record_step(a_record(lease, a_step("b", b"2")))
    assert (await store.complete(a_completion(lease))).outcome is Outcome.OK
    assert (await store.read_run(lease.run_id)).status is RunStatus.SUCCEEDED

    await go_back()

    assert (await let_leases_expire(store)).queued == 1
    again = await claim_one(store)
    assert again.run_id == lease.run_id
    assert again.steps is not None and [step.name for step in again.steps] == ["a"]
    await store.complete(a_completion(again, b'"again"'))
    ended = await store.read_run(lease.run_id)
    assert ended.output is not None and ended.output.data == b'"again"'


async def test_a_run_that_was_started_in_them_is_gone_and_the_same_request_makes_it_again(
    store: Store, remember: Remember
) -> None:
    go_back = await remember()
    run = a_run()
    assert (await store.enqueue(run)).was_created

    await go_back()

    with pytest.raises(RunNotFound):
        await store.read_run(run.run_id)
    assert (await store.enqueue(run)).was_created
    assert (await claim_one(store)).run_id == run.run_id


async def test_a_cancel_that_was_accepted_in_them_is_forgotten_and_can_be_asked_for_again(
    store: Store, remember: Remember
) -> None:
    run_id = await enqueue_one(store)
    go_back = await remember()
    await request_cancel(store, run_id)
    assert (await store.read_run(run_id)).status is RunStatus.CANCELED

    await go_back()

    assert (await store.read_run(run_id)).status is RunStatus.QUEUED
    await request_cancel(store, run_id)
    assert (await store.read_run(run_id)).status is RunStatus.CANCELED


async def test_an_event_that_was_emitted_in_them_is_gone_with_its_runs_and_the_same_call_emits_it_again(
    store: Store, remember: Remember
) -> None:
    await register(store, a_workflow(event_names=("paid",)))
    go_back = await remember()
    event = an_event("paid")
    emitted = await store.emit_event(event)

    await go_back()

    [run_id] = emitted.run_ids
    with pytest.raises(RunNotFound):
        await store.read_run(run_id)
    assert await store.emit_event(event) == emitted
    assert (await store.read_run(run_id)).status is RunStatus.QUEUED
