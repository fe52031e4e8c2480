"""What the tests of users get: of `run_inline`, and of the fixtures of the pytest plugin."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_type

from redflow_sdk import Client, Failure, JsonValue, Payload, Run, Step, Worker
from redflow_sdk.records import RunStatus
from redflow_sdk.testing import EmittedEvent, ExternalEvent, InlineResult, run_inline
from redflow_server.testing.gateways import RunningGateway
from tests.typing.definitions import Address, Order, Receipt, charge, look, send, sweep
from tests.typing.workers import Trace


async def inline() -> None:
    result = await run_inline(charge, Order(1), steps={"charge": Receipt(total=1.0)}, events=[ExternalEvent("paid")])
    assert_type(result, InlineResult[Receipt])
    assert_type(result.output, Receipt)
    assert_type(result.failure, Failure | None)
    assert_type(result.run, Run)
    assert_type(result.status, RunStatus)
    assert_type(result.step("charge"), Step)
    assert_type(result.step("charge").output, JsonValue | Payload | bytes)
    assert_type(result.unused, tuple[str, ...])
    assert_type(result.emitted, tuple[EmittedEvent, ...])
    assert_type((await run_inline(sweep)).output, int)
    assert_type((await run_inline(look, now=datetime.now(UTC))).output, Order | None)
    sent = await run_inline(send, {"street": "Main", "number": 5}, workflows=[charge], middleware=[Trace()])
    assert_type(sent.output, Address)


async def test_on_a_gateway(redflow: RunningGateway) -> None:
    assert_type(redflow.target, str)
    async with redflow.worker(charge, sweep) as worker, redflow.client() as client:
        assert_type(worker, Worker)
        assert_type(client, Client)
        assert_type(await client.execute(charge, Order(1), timeout=10), Receipt)


async def misuses() -> None:
    await run_inline(charge, 1)  # type: ignore[arg-type]  # pyright: ignore  # no Order
    await run_inline(charge)  # type: ignore[arg-type]  # pyright: ignore  # no input
    await run_inline(charge, Order(1), events=["paid"])  # type: ignore[list-item]  # pyright: ignore  # no event
