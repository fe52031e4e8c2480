"""`redflow worker list|get`: who is connected."""

from __future__ import annotations

import asyncio

from redflow_sdk import VERSION, Client, Context, workflow
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.gateway import Gateway
from tests.cli.conftest import Run
from tests.conftest import StartWorker
from tests.eventually import eventually

WORKER = {
    *("id", "name", "owner", "build_id", "sdk", "gateway_id", "session_id", "queues", "workflows"),
    *("slot_limit", "leases", "parked", "free_slots", "is_draining", "connected_at"),
}


@workflow(name="hold", queue="shop")
async def hold(ctx: Context) -> None:
    await asyncio.sleep(60)


@workflow(name="rest", queue="shop")
async def rest(ctx: Context) -> None:
    await ctx.step.sleep("nap", 600)


@workflow(name="mail", queue="mail")
async def mail(ctx: Context) -> None:
    return None


async def test_list_shows_each_worker_on_a_line_by_name(here: Run, start_worker: StartWorker, gateway: Gateway) -> None:
    await start_worker(hold, name="shop-2", owner="billing", build_id="b7", concurrency=3)
    await start_worker(mail, name="shop-1")
    shown = await here("worker", "list")
    assert (shown.code, shown.err) == (ExitCode.OK, "")
    header, first, second = shown.out.splitlines()
    assert header.split() == ["ID", "NAME", "OWNER", "SDK", "QUEUES", "WORKFLOWS", "SLOTS", "CONNECTED", "GATEWAY"]
    assert first.split()[1] == "shop-1"
    words = second.split()
    assert words[1:8] == ["shop-2", "billing", "redflow-sdk", VERSION, "shop", "hold", "0/3"]
    assert words[-1] == gateway.gateway_id

    document = (await here("worker", "list", "-o", "json")).json
    assert [one["name"] for one in document["workers"]] == ["shop-1", "shop-2"]
    assert all(set(one) == WORKER for one in document["workers"])


async def test_get_shows_a_worker_by_name_and_by_id(here: Run, start_worker: StartWorker) -> None:
    await start_worker(hold, mail, name="shop-1", owner="billing", build_id="b7", concurrency=3)
    document = (await here("worker", "get", "shop-1", "-o", "json")).json
    assert set(document) == WORKER
    assert sorted(document["queues"]) == ["mail", "shop"]
    assert document["sdk"] == {"name": "redflow-sdk", "version": VERSION, "language": "python"}
    assert (document["slot_limit"], document["free_slots"], document["is_draining"]) == (3, 3, False)

    shown = dict(line.split(maxsplit=1) for line in (await here("worker", "get", document["id"])).out.splitlines())
    assert (shown["id"], shown["name"], shown["slots"]) == (document["id"], "shop-1", "0/3")
    assert sorted(shown["workflows"].split(", ")) == ["hold", "mail"]


async def test_a_run_whose_handler_waits_in_memory_is_counted_beside_the_slots(
    here: Run, gateway: Gateway, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(hold, rest, name="shop-1", concurrency=2)
    for name in ("hold", "rest", "rest"):
        await client.start(name)

    async def is_shown() -> bool:
        gateway.duties.registry.wake()  # else it tells of its workers every ten seconds
        document = (await here("worker", "get", "shop-1", "-o", "json")).json
        return [document[name] for name in ("slot_limit", "leases", "parked", "free_slots")] == [2, 3, 2, 1]

    await eventually(is_shown, within=10)
    assert "  1/2 +2 parked  " in (await here("worker", "list")).out
    shown = dict(line.split(maxsplit=1) for line in (await here("worker", "get", "shop-1")).out.splitlines())
    assert shown["slots"] == "1/2 +2 parked"
    assert "parked" not in shown


async def test_workers_of_one_name_are_told_apart_by_their_ids(here: Run, start_worker: StartWorker) -> None:
    for _ in range(2):
        await start_worker(hold, name="shop")
    ids = sorted(one["id"] for one in (await here("worker", "list", "-o", "json")).json["workers"])
    assert all(map(str.isalnum, ids)), "one that began with a hyphen would be an option"
    ended = await here("worker", "get", "shop")
    assert ended.code == ExitCode.REFUSED
    assert ended.error == f"2 workers are called shop; give an id: {', '.join(ids)}"
    assert (await here("worker", "get", ids[1], "-o", "json")).json["id"] == ids[1]


async def test_a_worker_that_has_ended_is_not_listed_any_more(here: Run, start_worker: StartWorker) -> None:
    worker = await start_worker(hold, name="shop-1")
    assert (await here("worker", "get", "shop-1")).code == ExitCode.OK
    await worker.stop()
    ended = await here("worker", "get", "shop-1")
    assert (ended.code, ended.error) == (ExitCode.NOT_FOUND, "no worker shop-1 is connected")
    assert (await here("worker", "list", "-o", "json")).json == {"workers": []}
    assert len((await here("worker", "list")).out.splitlines()) == 1


async def test_long_lists_of_names_are_cut_in_the_table_and_whole_in_what_is_shown_of_one(
    here: Run, start_worker: StartWorker
) -> None:
    queues = [f"queue-{number:02}" for number in range(20)]
    await start_worker(hold, name="shop-1", queues=queues)
    [_, line] = (await here("worker", "list")).out.splitlines()
    assert "…" in line and "queue-19" not in line
    assert "queue-19" in (await here("worker", "get", "shop-1")).out
