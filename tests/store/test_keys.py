"""Names of keys: what users call things can neither break nor merge them, and Lua builds the same ones as Python."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from redflow_server.domain.ids import counted
from redflow_server.domain.leases import Lane
from redflow_server.domain.waits import event_channel
from redflow_server.store.admin import Admin
from redflow_server.store.keys import SOLO, Keys, lane_name, lane_of, split_channel
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
from tests.builders import a_claim, a_run, a_workflow, everything, register
from tests.redis_command import RedisCommand

ODD: Final = (
    "a",
    "a:b",
    "b:c",
    ":",
    "::runs",
    "a:runs",
    "1:a",
    "3:a:b",
    "{tag}",
    "}{",
    "%s %d %%",
    "*[?]\\",
    " a ",
    "'\"",
    "é",
    "e\u0301",
    "🚀",
    "日本:🚀",
    "run:x:data",
    "x" * 256,
)


def test_a_counted_part_says_its_length_in_bytes() -> None:
    assert counted("a:b") == "3:a:b"
    assert counted("é") == "2:é"
    assert counted("🚀") == "4:🚀"


@pytest.mark.parametrize("queue", ODD)
def test_a_lane_name_gives_its_queue_and_workflow_back(queue: str) -> None:
    for workflow in ODD:
        assert lane_of(lane_name(queue, workflow)) == Lane(queue, workflow)
        assert lane_of(SOLO + lane_name(queue, workflow)) == Lane(queue, workflow, is_solo=True)


@pytest.mark.parametrize("event", ODD)
def test_a_channel_gives_the_name_and_key_of_its_events_back(event: str) -> None:
    assert split_channel(event_channel(event, None)) == (event, None)
    for key in (*ODD, ""):
        assert split_channel(event_channel(event, key)) == (event, key)


def test_no_two_things_share_a_key() -> None:
    keys = Keys("p")
    fixed = [getattr(keys, name) for name in dir(Keys) if isinstance(getattr(Keys, name), property)]
    one_name = [keys.workflow, keys.event_workflows, keys.owner_workflows, keys.owner_builds]
    statuses = ("queued", "running", "succeeded")
    named = [name(odd) for name in one_name for odd in ODD]
    named += [keys.workflow_status(status, odd) for status in statuses for odd in ODD]
    named += [keys.lane(lane_name(*pair)) for pair in product(ODD, ODD)]
    named += [keys.idempotency(*pair) for pair in product(ODD, ODD)]
    channels = [event_channel(*pair) for pair in product(ODD, (None, "", *ODD))]
    named += [name(channel) for name in (keys.event_log, keys.event_waits) for channel in channels]
    named += [keys.event_key(*pair) for pair in product(ODD, ODD)]
    of_run = (keys.run, keys.data, keys.steps, keys.waits, keys.awaiters, keys.cursors, keys.children)
    by_id = [name(run_id) for name in of_run for run_id in ("a", "data", "steps", "waits", "run_a")]
    by_status = [name(status) for name in (keys.status, keys.finished) for status in statuses]

    names = fixed + named + by_id + by_status
    assert len(set(names)) == len(names)
    assert all(name.startswith("p:") for name in names)


def test_idempotency_scopes_do_not_merge_at_a_colon() -> None:
    keys = Keys("p")
    assert keys.idempotency("idem:a", "b:c") != keys.idempotency("idem:a:b", "c")


async def go_through_most_keys(store: Store, name: str) -> tuple[str, str]:
    """Has the scripts build keys of a workflow, queue, owner, event and idempotency key all of this name."""
    await register(store, a_workflow(name=name, queue=name, event_names=(name,)), owner=name)
    await store.enqueue(a_run(run_id="run_queued", workflow=name, queue=name, idempotency_key=name))
    await store.enqueue(a_run(run_id="run_later", workflow=name, queue=name, available_at_ms=2**43))
    return "run_queued", "run_later"


@pytest.mark.parametrize("name", ODD)
async def test_scripts_and_python_build_the_same_names(
    store: Store, redis: RedisCommand, keys: Keys, name: str
) -> None:
    queued, later = await go_through_most_keys(store, name)

    shared = {keys.run_seq, keys.workflows, keys.workflow(name)}
    shared |= {keys.event_workflows(name), keys.owner_workflows(name), keys.owner_builds(name)}
    runs = {keys.run(queued), keys.data(queued), keys.run(later), keys.data(later)}
    places = {keys.lane(lane_name(name, name)), keys.lanes, keys.lane_seq, keys.scheduled}
    listings = {key for status in ("queued", "scheduled") for key in (keys.status(status),)}
    listings |= {keys.workflow_status(status, name) for status in ("queued", "scheduled")}
    pointers = {keys.idempotency(name, name)}
    assert set(await everything(redis, keys)) == shared | runs | places | listings | pointers

    claimed = await store.claim(a_claim(Lane(name, name), count=1))
    assert [run.run_id for run in claimed.runs] == [queued]
    leased = {keys.leases, keys.status("running"), keys.workflow_status("running", name)}
    left = {keys.lanes, keys.lane(lane_name(name, name)), keys.status("queued"), keys.workflow_status("queued", name)}
    expected = (shared | runs | places | listings | pointers | leased) - left
    assert set(await everything(redis, keys)) == expected


@pytest.mark.parametrize("prefix_end", ["{tag}", "a:b", "%s", "*[?]\\^-", "é 🚀"])
async def test_a_prefix_is_data_too(redis: RedisCommand, redis_url: str, prefix: str, prefix_end: str) -> None:
    keys = Keys(f"{prefix}:{prefix_end}")
    dial = Dial(redis_url)
    pipeline = Pipeline(dial, load_scripts(), keys.prefix)
    await pipeline.start()
    try:
        queued, _ = await go_through_most_keys(Store(pipeline), "flow")

        found = await everything(redis, Keys(prefix))
        assert {keys.run(queued), keys.workflow("flow"), keys.lane(lane_name("flow", "flow"))} <= found.keys()
        assert all(name.startswith(f"{keys.prefix}:") for name in found)
    finally:
        await pipeline.stop()
        await Admin(dial, keys).reset()
        await dial.close()
