"""`redflow queue`: what waits where, and whether anybody will take it."""

from __future__ import annotations

import asyncio

from redflow_sdk import Client, Context, workflow
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.gateway import Gateway
from tests.cli.conftest import Run
from tests.cli.test_worker_list import WORKER
from tests.cli.test_workflow import LANE
from tests.conftest import StartWorker
from tests.eventually import eventually

QUEUE = {"name", "depth", "slot_limit", "free_slots", "lanes", "workers"}


@workflow(name="hold", queue="shop")
async def hold(ctx: Context) -> None:
    await ctx.step.run("begun", str)
    await asyncio.sleep(60)


@workflow(name="mail", queue="mail")
async def mail(ctx: Context) -> None:
    return None


def lines(table: str) -> list[list[str]]:
    """The lines of a table under its header, in words."""
    return [line.split(maxsplit=4) for line in table.splitlines()[1:]]


async def test_list_shows_each_lane_and_marks_those_that_no_worker_serves(
    here: Run, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(hold, name="shop-1", concurrency=3)
    await start_worker(hold, mail, name="shop-2", queues=["shop"], concurrency=2)
    for name, queue in (("mail", "mail"), ("mail", "mail"), ("nobody's", "shop"), ("hold", "elsewhere")):
        await client.start(name, queue=queue)

    shown = await here("queue", "list")
    assert (shown.code, shown.err) == (ExitCode.OK, "")
    assert shown.out.splitlines()[0].split() == ["QUEUE", "WORKFLOW", "QUEUED", "FREE_SLOTS", "SERVED_BY"]
    assert lines(shown.out) == [
        ["elsewhere", "hold", "1", "-", "no worker"],
        ["mail", "mail", "2", "-", "no worker"],
        ["shop", "hold", "0", "5", "shop-1, shop-2"],
        ["shop", "nobody's", "1", "-", "no worker"],
    ]


async def test_list_is_the_same_for_programs(here: Run, client: Client, start_worker: StartWorker) -> None:
    await start_worker(hold, name="shop-1", concurrency=3)
    await client.start("mail", queue="mail")
    document = (await here("queue", "list", "-o", "json")).json
    assert set(document) == {"queues", "lanes_left_out"}
    assert document["lanes_left_out"] == 0
    first, second = document["queues"]
    assert set(first) == set(second) == QUEUE
    assert set(first["lanes"][0]) == LANE
    assert set(second["workers"][0]) == WORKER
    assert [(one["name"], one["depth"], one["slot_limit"], one["free_slots"]) for one in (first, second)] == [
        ("mail", 1, 0, 0),
        ("shop", 0, 3, 3),
    ]
    assert [(lane["workflow"], lane["depth"], lane["is_served"]) for lane in first["lanes"]] == [("mail", 1, False)]
    assert [(lane["workflow"], lane["workers"]) for lane in second["lanes"]] == [("hold", ["shop-1"])]


async def test_busy_workers_have_fewer_free_slots_and_what_they_cannot_take_is_queued(
    here: Run, gateway: Gateway, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(hold, name="shop-1", concurrency=2)
    for _ in range(5):
        await client.start("hold")

    async def is_shown() -> bool:
        gateway.duties.registry.wake()  # else it tells of its workers every ten seconds
        return lines((await here("queue", "list")).out) == [["shop", "hold", "3", "0", "shop-1"]]

    await eventually(is_shown, within=10)


async def test_runs_that_wait_in_the_memory_of_a_worker_take_up_none_of_its_slots(
    here: Run, gateway: Gateway, client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="rest", queue="shop")
    async def rest(ctx: Context) -> None:
        await ctx.step.sleep("nap", 600)

    await start_worker(rest, name="shop-1", concurrency=2)
    for _ in range(5):
        await client.start(rest)

    async def are_parked() -> bool:
        gateway.duties.registry.wake()  # else it tells of its workers every ten seconds
        (queue,) = (await here("queue", "list", "-o", "json")).json["queues"]
        return (queue["workers"][0]["parked"], queue["free_slots"]) == (5, 2)

    await eventually(are_parked, within=10)
    assert lines((await here("queue", "list")).out) == [["shop", "rest", "0", "2", "shop-1"]]
    assert "free_slots  2 of 2" in (await here("queue", "get", "shop")).out


async def test_a_worker_that_drains_is_marked_and_has_no_free_slot(
    here: Run, gateway: Gateway, client: Client, start_worker: StartWorker
) -> None:
    worker = await start_worker(hold, name="shop-1", concurrency=2, drain_grace=20)
    handle = await client.start("hold")

    async def has_begun() -> bool:
        return await client.get_run_steps(handle.id) != []

    await eventually(has_begun, within=10)
    draining = asyncio.create_task(worker.drain())

    async def is_shown() -> bool:
        gateway.duties.registry.wake()
        return lines((await here("queue", "list")).out) == [["shop", "hold", "0", "0", "shop-1 (draining)"]]

    await eventually(is_shown, within=10)
    await handle.cancel()
    await draining


async def test_get_shows_a_queue_with_its_lanes_and_its_workers(
    here: Run, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(hold, name="shop-1", concurrency=3)
    await start_worker(mail, name="post-1")
    await client.start("nobody's", queue="shop")

    card, lanes, workers = (await here("queue", "get", "shop")).out.split("\n\n")
    assert [line.split(maxsplit=1) for line in card.splitlines()] == [
        ["queue", "shop"],
        ["queued", "1"],
        ["free_slots", "3 of 3"],
    ]
    assert [line.split(maxsplit=3) for line in lanes.splitlines()[1:]] == [
        ["hold", "0", "3", "shop-1"],
        ["nobody's", "1", "-", "no worker"],
    ]
    assert [line.split()[1] for line in workers.splitlines()] == ["NAME", "shop-1"]

    document = (await here("queue", "get", "shop", "-o", "json")).json
    assert set(document) == QUEUE
    assert document == (await here("queue", "list", "-o", "json")).json["queues"][1]


async def test_a_queue_without_runs_or_registered_workflows_is_shown_as_long_as_a_worker_serves_it(
    here: Run, start_worker: StartWorker
) -> None:
    await start_worker(hold, name="shop-1", queues=["idle"], concurrency=3)
    assert lines((await here("queue", "list")).out) == [
        ["idle", "-", "0", "3", "shop-1"],
        ["shop", "hold", "0", "-", "no worker"],
    ]
    assert (await here("queue", "get", "idle")).code == ExitCode.OK


async def test_a_queue_of_which_nobody_knows_is_not_found(here: Run) -> None:
    ended = await here("queue", "get", "nope")
    assert ended.code == ExitCode.NOT_FOUND
    assert ended.error.startswith("there is no queue nope: no workflow is registered for it")


async def test_lanes_beyond_those_of_which_a_gateway_tells_are_said_to_be_left_out(
    here: Run, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(hold, name="shop-1")
    await asyncio.gather(*(client.start("w", queue=f"q{number:03}") for number in range(503)))
    document = await here("queue", "list", "-o", "json")
    assert (document.code, document.json["lanes_left_out"]) == (ExitCode.OK, 3)
    assert document.err == (
        "redflow: the gateway tells of the 500 lanes that filled last, and leaves out 3 with runs\n"
    )
    [shop] = [queue for queue in document.json["queues"] if queue["name"] == "shop"]
    assert [lane["depth"] for lane in shop["lanes"]] == [None], "not told is not empty"
