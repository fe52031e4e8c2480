"""What clients, blocking ones too, give: by definitions and by names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import assert_type

from redflow_sdk import (
    Client,
    Failure,
    JsonValue,
    Payload,
    Run,
    RunFailedError,
    RunHandle,
    Schedule,
    Stats,
    Step,
    SyncClient,
    SyncRunHandle,
    WorkerInfo,
    WorkflowInfo,
)
from redflow_sdk.records import RunStatus
from tests.typing.definitions import (
    Address,
    Order,
    Receipt,
    any_json,
    charge,
    look,
    mean,
    resize,
    send,
    sweep,
    tidy,
    turn,
)


async def starts(client: Client) -> None:
    handle = await client.start(charge, Order(1), idempotency_key="k", priority=5)
    assert_type(handle, RunHandle[Receipt])
    assert_type(handle.created, bool)
    assert_type(await handle.result(timeout=30), Receipt)
    assert_type(await handle.get(), Run)
    assert_type(await client.start(tidy), RunHandle[None])
    assert_type(await client.start(sweep, delay=60), RunHandle[int])
    assert_type(await Client(call_timeout=2).start("charge", {"id": 1}, delay=0.5), RunHandle[JsonValue])
    assert_type(await client.start(look), RunHandle[Order | None])
    assert_type(await client.start("charge", {"id": 1}), RunHandle[JsonValue])
    assert_type(await client.handle(handle.id).result(), JsonValue)
    assert_type(await client.cancel_run(handle.id, reason="customer left"), bool)


async def executes(client: Client) -> None:
    assert_type(await client.execute(charge, Order(1)), Receipt)
    assert_type(await client.execute(sweep), int)
    assert_type(await client.execute(resize, 7, timeout=5), list[int])
    assert_type(await client.execute(send, {"street": "Main", "number": 5}), Address)
    assert_type(await client.execute(look, Order(1)), Order | None)
    assert_type(await client.execute(mean, [1, 2]), float)
    assert_type(await client.execute(any_json, {"id": [1, {"of": "a"}]}), JsonValue)
    assert_type(await client.execute("charge", {"id": 1}), JsonValue)
    try:
        await client.execute(charge, Order(1))
    except RunFailedError as error:
        assert_type(error.failure, Failure)


async def looks(client: Client) -> None:
    run = await client.get_run("run-1")
    assert_type(run.input, JsonValue | Payload | bytes)
    assert_type(run.failure, Failure | None)
    assert_type(run.status, RunStatus)
    assert_type(await client.get_run_steps("run-1"), list[Step])
    assert_type(await client.wait_run("run-1", 5), Run | None)
    assert_type(await client.list_runs(status="failed").page(limit=5), list[Run])
    async for listed in client.list_runs(workflow="charge"):
        assert_type(listed, Run)
    assert_type(await client.list_schedules(), list[Schedule])
    assert_type(await client.get_workflow("charge"), WorkflowInfo)
    assert_type(await client.list_workflows(), list[WorkflowInfo])
    assert_type(await client.list_workers(), list[WorkerInfo])
    stats = await client.stats()
    assert_type(stats, Stats)
    assert_type(stats.runs, Mapping[RunStatus, int])


async def tells(client: Client) -> None:
    assert_type(await client.emit_event("paid", Order(1), key="o-7", idempotency_key="k"), list[str])
    assert_type(await client.schedule_event("paid", available_at=datetime.now(UTC)), list[str])
    await client.complete_token("tok", Receipt(total=1.0))
    await client.fail_token("tok", "too dear", type="Rejected")
    async with client as same:
        assert_type(same, Client)


async def misuses(client: Client) -> None:
    await client.start(charge, Receipt(total=1.0))  # type: ignore[arg-type]  # pyright: ignore  # no Order
    await client.start(charge)  # type: ignore[arg-type]  # pyright: ignore  # no input
    await client.start(sweep, 5)  # type: ignore[misc]  # pyright: ignore  # takes no input
    await client.start(charge, Order(1), on_input_mismatch="ignore")  # type: ignore[call-overload]  # pyright: ignore  # neither
    await client.start(charge, Order(1), priority="high")  # type: ignore[call-overload]  # pyright: ignore  # no int
    await client.execute(resize, "large")  # type: ignore[arg-type]  # pyright: ignore  # no int
    await client.execute(send, {"street": 5})  # type: ignore[arg-type]  # pyright: ignore  # no Address
    await client.execute(turn, "back")  # type: ignore[arg-type]  # pyright: ignore  # neither of the two
    await client.execute(charge)  # type: ignore[arg-type]  # pyright: ignore  # no input
    client.list_runs(status="lost")  # type: ignore[arg-type]  # pyright: ignore  # no status


def blocks(client: SyncClient) -> None:
    handle = client.start(charge, Order(1), idempotency_key="k", priority=5)
    assert_type(handle, SyncRunHandle[Receipt])
    assert_type(handle.result(timeout=30), Receipt)
    assert_type(handle.get(), Run)
    assert_type(client.start(tidy), SyncRunHandle[None])
    assert_type(client.start(charge, Order(1), delay=60), SyncRunHandle[Receipt])
    assert_type(SyncClient(call_timeout=2).start("charge", {"id": 1}, delay=0.5), SyncRunHandle[JsonValue])
    assert_type(client.start("charge", {"id": 1}), SyncRunHandle[JsonValue])
    assert_type(client.handle(handle.id), SyncRunHandle[JsonValue])
    assert_type(client.execute(charge, Order(1)), Receipt)
    assert_type(client.execute(sweep), int)
    assert_type(client.execute(resize, 7, timeout=5), list[int])
    assert_type(client.execute(send, {"street": "Main", "number": 5}), Address)
    assert_type(client.execute("charge", {"id": 1}), JsonValue)
    assert_type(client.list_runs(status="failed").page(limit=5), list[Run])
    for listed in client.list_runs(workflow="charge"):
        assert_type(listed, Run)
    assert_type(client.wait_run(handle.id, 5), Run | None)
    assert_type(client.emit_event("paid", Order(1), key="o-7"), list[str])
    with client as same:
        assert_type(same, SyncClient)


def misuses_of_blocking(client: SyncClient) -> None:
    client.start(charge, Receipt(total=1.0))  # type: ignore[arg-type]  # pyright: ignore  # no Order
    client.start(charge)  # type: ignore[arg-type]  # pyright: ignore  # no input
    client.start(charge, Order(1), on_input_mismatch="ignore")  # type: ignore[call-overload]  # pyright: ignore  # neither
    client.execute(resize, "large")  # type: ignore[arg-type]  # pyright: ignore  # no int
    client.execute(charge)  # type: ignore[arg-type]  # pyright: ignore  # no input
    client.list_runs(status="lost")  # type: ignore[arg-type]  # pyright: ignore  # no status
