"""What a client sends, what it refuses by itself, and how it bears a gateway that is away."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from redflow_sdk import (
    Client,
    Context,
    IdempotencyKeyReusedError,
    InputValidationError,
    InvalidInputError,
    RedflowError,
    RefusedError,
    RetryPolicy,
    RunNotFoundError,
    SerializationError,
    UnavailableError,
    UnknownWorkflowError,
    workflow,
)
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import run_pb2
from tests.eventually import eventually
from tests.sdk.scripted_runs import Refusal, ScriptedRuns, a_page, a_run

AWAY = Refusal(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")


@dataclass
class Order:
    id: int


@dataclass
class Receipt:
    total: float


@workflow(name="charge", queue="money", retry=RetryPolicy(max_attempts=4))
async def charge(ctx: Context, order: Order) -> Receipt:
    return Receipt(1.0)


# ---- arguments ----


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"available_at": datetime(2030, 1, 1)}, "available_at"),  # noqa: DTZ001  # that is the case
        ({"delay": -1}, "delay"),
        ({"delay": timedelta(seconds=1)}, "delay"),
        ({"delay": 1, "available_at": datetime(2030, 1, 1, tzinfo=UTC)}, "delay"),
        ({"idempotency_ttl": float("nan"), "idempotency_key": "k"}, "idempotency_ttl"),
        ({"idempotency_ttl": float("inf"), "idempotency_key": "k"}, "idempotency_ttl"),
        ({"idempotency_ttl": 0, "idempotency_key": "k"}, "idempotency_ttl"),
        ({"idempotency_ttl": -1, "idempotency_key": "k"}, "idempotency_ttl"),
        ({"priority": 1001}, "priority"),
        ({"priority": -1001}, "priority"),
        ({"priority": 10**30}, "priority"),
        ({"priority": float("nan")}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": 10**30}, "max_attempts"),
        ({"queue": ""}, "queue"),
        ({"queue": "a\nb"}, "queue"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "x" * 257}, "idempotency_key"),
        ({"idempotency_key": "lone \ud800"}, "idempotency_key"),
    ],
    ids=ascii,
)
async def test_an_argument_that_makes_no_sense_is_refused_before_anything_is_sent(
    settings: dict[str, Any], what: str, runs: ScriptedRuns
) -> None:
    async with Client(runs.target) as client:
        with pytest.raises(ValueError, match=what):
            await client.start(charge, Order(1), **settings)
    assert runs.calls == []


async def test_an_input_that_does_not_fit_or_is_no_json_is_refused_before_anything_is_sent(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        with pytest.raises(InputValidationError, match=r"\$\.id"):
            await client.start(charge, Order("one"))  # type: ignore[arg-type]  # that is the case
        with pytest.raises(SerializationError, match=r"\$\.a"):
            await client.start("charge", {"a": {1, 2}})
        with pytest.raises(InvalidInputError, match="workflow"):
            await client.start("", {})
    assert runs.calls == []


async def test_a_start_says_all_that_was_asked_for(runs: ScriptedRuns) -> None:
    at = datetime(2030, 1, 1, 12, tzinfo=UTC) + timedelta(microseconds=5)
    async with Client(runs.target) as client:
        await client.start(
            charge, Order(1), idempotency_key="k", idempotency_ttl=1.5, available_at=at, queue="q", priority=-7,
            max_attempts=9, on_input_mismatch="reject",
        )  # fmt: skip
        await client.start(charge, Order(2))
        await client.start("by-name")
        before = datetime.now(UTC)
        await client.start(charge, Order(3), delay=60)
    full, plain, by_name, delayed = (call.request for call in runs.named("StartRun"))
    assert (full.workflow, full.input.data, full.queue, full.max_attempts) == ("charge", b'{"id":1}', "q", 9)
    assert (full.idempotency_key, full.idempotency_ttl.ToMilliseconds(), full.priority) == ("k", 1500, -7)
    assert full.available_time.ToDatetime(UTC) == at
    assert full.on_input_mismatch == pb.INPUT_MISMATCH_REJECT and full.typed
    assert (plain.queue, plain.max_attempts, plain.priority) == ("money", 4, 0)
    assert not plain.HasField("available_time") and not plain.HasField("idempotency_ttl")
    assert (by_name.workflow, by_name.queue, by_name.max_attempts, by_name.typed) == ("by-name", "", 0, False)
    assert (
        timedelta() <= delayed.available_time.ToDatetime(UTC) - before - timedelta(seconds=60) < timedelta(seconds=30)
    )
    assert len({full.request_id, plain.request_id, by_name.request_id} - {""}) == 3


async def test_a_handle_says_whether_its_run_is_new(runs: ScriptedRuns) -> None:
    runs.script["StartRun"] = lambda request: pb.StartRunResponse(run_id="run-7", created=False, input_differs=True)
    async with Client(runs.target) as client:
        handle = await client.start(charge, Order(1), idempotency_key="k")
    assert (handle.id, handle.created, handle.input_differs) == ("run-7", False, True)


async def test_the_gateway_is_found_by_the_environment(runs: ScriptedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDFLOW_TARGET", f" {runs.target} ")
    async with Client() as client:
        assert (await client.get_run("run-7")).id == "run-7"


# ---- refusals ----


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", InvalidInputError),
        (grpc.StatusCode.INVALID_ARGUMENT, "PAYLOAD_TOO_LARGE", InvalidInputError),
        (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND", RunNotFoundError),
        (grpc.StatusCode.NOT_FOUND, "WORKFLOW_NOT_FOUND", UnknownWorkflowError),
        (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED", IdempotencyKeyReusedError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL", RefusedError),
        (grpc.StatusCode.FAILED_PRECONDITION, "OF_A_LATER_GATEWAY", RefusedError),
        (grpc.StatusCode.INTERNAL, "INTERNAL", RefusedError),
        (grpc.StatusCode.PERMISSION_DENIED, "", RefusedError),
    ],
    ids=str,
)
async def test_a_refusal_becomes_the_error_of_its_reason_at_once(
    code: grpc.StatusCode, reason: str, expected: type[RedflowError], runs: ScriptedRuns
) -> None:
    def refuse(request: object) -> None:
        raise Refusal(code, reason, "this will not do")

    runs.script["StartRun"] = refuse
    async with Client(runs.target) as client:
        with pytest.raises(expected, match="this will not do") as refused:
            await client.start(charge, Order(1))
    assert type(refused.value) is expected
    assert refused.value.reason == (reason or code.name)
    assert len(runs.named("StartRun")) == 1


async def test_canceling_a_run_that_is_not_there_is_answered_with_false(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        assert await client.cancel_run("run-1", reason="customer left") is True
        runs.refuse_once("CancelRun", Refusal(grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND"))
        assert await client.cancel_run("run-2") is False
        runs.script["CancelRun"] = lambda request: pb.CancelRunResponse(accepted=False)
        assert await client.handle("run-3").cancel() is False
    assert [(call.request.run_id, call.request.reason) for call in runs.calls] == [
        ("run-1", "customer left"), ("run-2", ""), ("run-3", ""),
    ]  # fmt: skip


# ---- a gateway that is away ----


async def test_a_call_is_repeated_as_it_was_while_the_store_is_away(runs: ScriptedRuns) -> None:
    runs.refuse_once("StartRun", AWAY, Refusal(grpc.StatusCode.UNAVAILABLE, "GATEWAY_DRAINING"), AWAY)
    async with Client(runs.target) as client:
        assert (await client.start(charge, Order(1))).id == "run-1"
    calls = runs.named("StartRun")
    assert len(calls) == 4
    assert len({call.request.SerializeToString(deterministic=True) for call in calls}) == 1


async def test_a_call_waits_for_a_gateway_that_comes_back(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        await client.start(charge, Order(1))
        runs.stop()
        starting = asyncio.ensure_future(client.start(charge, Order(2)))
        await asyncio.sleep(1)  # the outage
        assert not starting.done()
        runs.start()
        assert (await asyncio.wait_for(starting, 10)).id == "run-1"


async def test_every_call_gives_up_in_time_when_there_is_no_gateway(runs: ScriptedRuns) -> None:
    runs.stop()
    async with Client(runs.target) as client:
        started_at = time.monotonic()
        ends = await asyncio.gather(
            client.start(charge, Order(1)),
            client.get_run("run-1"),
            client.get_run_steps("run-1"),
            client.list_runs().page(),
            client.cancel_run("run-1"),
            return_exceptions=True,
        )
        took = time.monotonic() - started_at
    assert [type(end) for end in ends] == [UnavailableError] * 5
    assert 10 < took < 18


async def test_a_call_that_nobody_waits_for_any_more_ends(runs: ScriptedRuns, released: threading.Event) -> None:
    def block(request: object) -> pb.GetRunResponse:
        released.wait(10)
        return pb.GetRunResponse(run=a_run())

    runs.script["GetRun"] = block
    async with Client(runs.target) as client:
        started_at = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.get_run("run-1"), 0.2)
        assert time.monotonic() - started_at < 1


async def test_a_call_that_waits_when_the_client_is_closed_raises_that(
    runs: ScriptedRuns, released: threading.Event
) -> None:
    def block(request: object) -> pb.GetRunResponse:
        released.wait(20)
        return pb.GetRunResponse(run=a_run())

    runs.script["GetRun"] = block
    client = Client(runs.target)
    call = asyncio.ensure_future(client.get_run("run-1"))
    await eventually(lambda: runs.named("GetRun"))
    await client.close()
    with pytest.raises(UnavailableError, match="closed"):
        await asyncio.wait_for(call, 5)


# ---- listing ----


async def test_a_listing_is_read_page_by_page_as_far_as_it_is_wanted(runs: ScriptedRuns) -> None:
    pages = {"": a_page(3, "t1"), "t1": a_page(3, "t2", first=3), "t2": a_page(1, first=6)}
    runs.script["ListRuns"] = lambda request: pages[request.page_token]
    async with Client(runs.target) as client:
        seen = []
        listing = client.list_runs(workflow="w", status="failed")
        assert runs.calls == []
        async for run in listing:
            seen.append(run.id)
            if len(seen) == 3:
                assert len(runs.calls) == 1
            if len(seen) == 4:
                break
        assert len(runs.calls) == 2
        assert [run.id async for run in listing] == [f"run-{n}" for n in range(7)]
    first = runs.calls[0].request
    assert (first.workflow, first.status, first.offset) == ("w", run_pb2.RUN_STATUS_FAILED, 0)


async def test_a_page_has_the_size_and_offset_that_were_asked_for(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        await client.list_runs().page()
        await client.list_runs().page(limit=7, offset=20)
        await client.list_runs().page(limit=9999, offset=-3)
        await client.list_runs().page(limit=0)
    asked = [(call.request.page_size, call.request.offset) for call in runs.calls]
    assert asked == [(50, 0), (7, 20), (500, 0), (1, 0)]


async def test_a_status_that_there_is_not_is_refused_by_name(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        for status in ("done", "unknown", "unspecified"):
            with pytest.raises(InvalidInputError, match=f"status must be one of .*got '{status}'"):
                await client.list_runs(status=status).page()  # type: ignore[arg-type]  # that is the case
    assert runs.calls == []


# ---- a newer gateway ----


async def test_values_that_a_newer_gateway_has_are_shown_as_unknown(runs: ScriptedRuns) -> None:
    waiting = run_pb2.WaitingFor(kind=99)  # type: ignore[arg-type]  # that is the case
    runs.script["GetRun"] = lambda request: pb.GetRunResponse(run=a_run(99, waiting_for=[waiting]))  # type: ignore[arg-type]  # as above
    step = run_pb2.Step(step_name="s", step_kind=99, status=99)  # type: ignore[arg-type]  # as above
    runs.script["ListRunSteps"] = lambda request: pb.ListRunStepsResponse(steps=[step, run_pb2.Step(step_name="t")])
    async with Client(runs.target) as client:
        run = await client.get_run("run-1")
        steps = await client.get_run_steps("run-1")
    assert (run.status, run.waiting_for[0].kind) == ("unknown", "unknown")
    assert [(it.status, it.kind) for it in steps] == [("unknown", "unknown")] * 2
