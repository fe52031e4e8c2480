"""read_steps: the steps of a run, all or by name, with as many of their values as fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redflow_server.domain.errors import LeaseLost, RunNotFound
from redflow_server.domain.leases import ClaimedRun
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import Step
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    HALF_WRITTEN,
    MISSING,
    START_MS,
    a_completion,
    a_failed_step,
    a_failure,
    a_lease,
    a_record,
    a_step,
    claim_one,
    every_state_but,
    everything,
    let_leases_expire,
    put_in_state,
    start_one,
)
from tests.redis_command import RedisCommand

ANY_BYTES = 10 * 1024 * 1024


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def with_steps(store: Store, **values: bytes | None) -> ClaimedRun:
    """A leased run with these steps, in this order."""
    lease = await start_one(store)
    for seq, (name, data) in enumerate(values.items(), start=1):
        await store.record_step(a_record(lease, a_step(name, data, seq=seq)))
    return lease


def found(steps: tuple[Step, ...]) -> list[tuple[str, bytes | None, bool]]:
    return [(step.name, step.output.data if step.output else None, step.is_left_out) for step in steps]


async def test_steps_come_in_the_order_of_their_first_use(store: Store) -> None:
    lease = await start_one(store)
    for name, seq in (("late", 30), ("b", 4), ("early", 1), ("a", 4)):
        await store.record_step(a_record(lease, a_step(name, seq=seq)))
    assert [step.name for step in await store.read_steps(lease.run_id, ANY_BYTES)] == ["early", "a", "b", "late"]


async def test_only_the_named_steps_come_and_unknown_names_are_left_out(store: Store) -> None:
    lease = await with_steps(store, a=b"1", b=b"2", c=b"3")
    steps = await store.read_steps(lease.run_id, ANY_BYTES, ["c", "nobody", "a", "s:b"])
    assert found(steps) == [("a", b"1", False), ("c", b"3", False)]


async def test_many_steps_come_at_once(store: Store) -> None:
    lease = await with_steps(store, **{f"s{number}": b"x" for number in range(3000)})
    assert len(await store.read_steps(lease.run_id, ANY_BYTES)) == 3000
    names = [f"s{number}" for number in range(0, 3000, 2)]
    assert [step.name for step in await store.read_steps(lease.run_id, ANY_BYTES, names)] == names


@pytest.mark.parametrize("data", AWKWARD_BYTES.values(), ids=AWKWARD_BYTES)
async def test_values_come_as_they_were_recorded(store: Store, data: bytes) -> None:
    lease = await start_one(store)
    output = Payload(data, "none", (("k", "a|b"),))
    await store.record_step(a_record(lease, replace(a_step(), output=output)))
    for names in ((), ("a",)):
        [step] = await store.read_steps(lease.run_id, ANY_BYTES, names)
        assert (step.output, step.size_bytes, step.is_left_out) == (output, len(data), False)


async def test_values_that_do_not_fit_are_left_out_and_their_size_is_told(store: Store) -> None:
    lease = await with_steps(store, small=b"x" * 10, large=b"x" * 101, none=None, empty=b"")
    steps = {step.name: step for step in await store.read_steps(lease.run_id, 100)}
    assert (steps["small"].output, steps["small"].is_left_out) == (Payload(b"x" * 10), False)
    assert (steps["large"].output, steps["large"].is_left_out) == (None, True)
    assert (steps["large"].size_bytes, steps["large"].status) == (101, StepStatus.SUCCEEDED)
    assert (steps["none"].output, steps["none"].is_left_out) == (None, False), "it has no value to leave out"


async def test_values_that_just_fit_come(store: Store) -> None:
    lease = await with_steps(store, a=b"x" * 60, b=b"y" * 40)
    assert [step.is_left_out for step in await store.read_steps(lease.run_id, 100)] == [False, False]
    assert sum(step.is_left_out for step in await store.read_steps(lease.run_id, 99)) == 1


async def test_without_room_for_values_it_is_an_index(store: Store) -> None:
    lease = await with_steps(store, a=b"1", b=b"22")
    steps = await store.read_steps(lease.run_id, 0)
    assert [(step.name, step.is_left_out, step.size_bytes) for step in steps] == [("a", True, 1), ("b", True, 2)]


async def test_a_failure_is_a_value_too(store: Store) -> None:
    lease = await start_one(store)
    failure = a_failure(message="x" * 1000)
    await store.record_step(a_record(lease, a_failed_step("a", failure=failure)))
    [step] = await store.read_steps(lease.run_id, ANY_BYTES)
    assert (step.failure, step.is_left_out) == (failure, False)
    [step] = await store.read_steps(lease.run_id, 100)
    assert (step.failure, step.is_left_out, step.status) == (None, True, StepStatus.FAILED)


@pytest.mark.parametrize("state", every_state_but(MISSING, HALF_WRITTEN))
async def test_a_run_of_any_status_has_its_steps_read(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    steps = await store.read_steps(run_id, ANY_BYTES)
    assert [step.status for step in steps] == ([StepStatus.WAITING] if state is RunStatus.WAITING else [])
    assert await everything(redis, keys) == before


async def test_a_run_that_does_not_exist_has_no_steps_to_read(store: Store) -> None:
    with pytest.raises(RunNotFound):
        await store.read_steps("run_nowhere", ANY_BYTES)
    with pytest.raises((RunNotFound, LeaseLost)):
        await store.read_steps("run_nowhere", ANY_BYTES, (), "run_nowhere.token")


# ---- under a lease ----


async def test_the_holder_of_the_lease_reads(store: Store) -> None:
    lease = await with_steps(store, a=b"1")
    assert found(await store.read_steps(lease.run_id, ANY_BYTES, (), lease.lease_token)) == [("a", b"1", False)]


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING, MISSING))
async def test_under_a_token_only_a_leased_run_is_read(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    with pytest.raises((LeaseLost, RunNotFound)):
        await store.read_steps(run_id, ANY_BYTES, (), a_lease(run_id).lease_token)


async def test_an_earlier_holder_reads_nothing(store: Store) -> None:
    lease = await with_steps(store, a=b"1")
    await let_leases_expire(store)
    with pytest.raises(LeaseLost):
        await store.read_steps(lease.run_id, ANY_BYTES, (), lease.lease_token)
    later = await claim_one(store)
    with pytest.raises(LeaseLost):
        await store.read_steps(lease.run_id, ANY_BYTES, ("a",), lease.lease_token)
    assert len(await store.read_steps(lease.run_id, ANY_BYTES, (), later.lease_token)) == 1


async def test_the_token_that_ended_the_run_reads_nothing(store: Store) -> None:
    lease = await with_steps(store, a=b"1")
    await store.complete(a_completion(lease))
    with pytest.raises(LeaseLost):
        await store.read_steps(lease.run_id, ANY_BYTES, (), lease.lease_token)
    assert found(await store.read_steps(lease.run_id, ANY_BYTES)) == [("a", b"1", False)]
