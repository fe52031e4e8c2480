"""RunService: starting runs. Every refusal has its status, its reason and the field that it is about."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import payload_pb2, run_pb2
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import CallsTo, OpenWorker
from tests.rpc.items import a_payload, a_result
from tests.rpc.scripted_worker import a_definition

MIB = 1024 * 1024
WINDOW_MS = 1200
YEAR_1, YEAR_9999 = -62_135_596_800, 253_402_300_799


def a_start(**changes: Any) -> pb.StartRunRequest:  # Any: its fields
    """A run of workflow `w` in queue `q`."""
    return pb.StartRunRequest(**{"workflow": "w", "queue": "q", **changes})


# ---- what is refused ----

INVALID = {
    "no workflow": ({"workflow": ""}, "workflow"),
    "a workflow of 257 bytes": ({"workflow": "x" * 257}, "workflow"),
    "a workflow with a NUL": ({"workflow": "a\x00b"}, "workflow"),
    "a queue with a line break": ({"queue": "a\nb"}, "queue"),
    "a queue of 257 bytes": ({"queue": "€" * 86}, "queue"),
    "a key with an escape": ({"idempotency_key": "\x1b[31m"}, "idempotency_key"),
    "a key of 257 bytes": ({"idempotency_key": "x" * 257}, "idempotency_key"),
    "a request id of 257 bytes": ({"request_id": "x" * 257}, "request_id"),
    "a request id with a tab": ({"request_id": "a\tb"}, "request_id"),
    "a priority above the highest": ({"priority": 1001}, "priority"),
    "a priority below the lowest": ({"priority": -1001}, "priority"),
    "the lowest int32 as priority": ({"priority": -(2**31)}, "priority"),
    "negative attempts": ({"max_attempts": -1}, "max_attempts"),
    "too many attempts": ({"max_attempts": 1_000_001}, "max_attempts"),
    "a window of nothing": ({"idempotency_key": "k", "idempotency_ttl": Duration()}, "idempotency_ttl"),
    "a negative window": ({"idempotency_key": "k", "idempotency_ttl": Duration(seconds=-1)}, "idempotency_ttl"),
    "a window before 1970": ({"idempotency_ttl": Duration(seconds=-(10**13))}, "idempotency_ttl"),
    "an endless window": ({"idempotency_ttl": Duration(seconds=2**63 - 1)}, "idempotency_ttl"),
    "a window over 100 years": ({"idempotency_ttl": Duration(seconds=101 * 366 * 86400)}, "idempotency_ttl"),
    "a time before year 1": ({"available_time": Timestamp(seconds=YEAR_1 - 1)}, "available_time"),
    "a time after year 9999": ({"available_time": Timestamp(seconds=YEAR_9999 + 1)}, "available_time"),
    "the last int64 as time": ({"available_time": Timestamp(seconds=2**63 - 1)}, "available_time"),
    "negative nanoseconds": ({"available_time": Timestamp(nanos=-1)}, "available_time"),
    "a second of nanoseconds": ({"available_time": Timestamp(nanos=1_000_000_000)}, "available_time"),
    "metadata over 8 KiB": ({"input": a_payload(metadata={"k": "x" * 9000})}, "input.metadata"),
}


@pytest.mark.parametrize("kind", INVALID)
async def test_an_invalid_start_is_refused_with_field_rule_and_what_came(calls: Calls, kind: str) -> None:
    fields, field = INVALID[kind]

    answer = await refused(calls.runs.StartRun(a_start(**fields)))

    assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert (answer.domain, answer.field) == ("redflow", field)
    assert {name for name, _ in answer.about} == {"field", "rule", "came"}
    assert answer.message.startswith(f"{field} must")
    assert answer.message.isprintable() and len(answer.message) < 500
    assert answer.retry_delay_ms is None
    batch = await calls.runs.BatchStartRuns(pb.BatchStartRunsRequest(runs=[a_start(**fields)]))
    assert [(one.refused.reason, one.refused.message) for one in batch.results] == [(answer.reason, answer.message)]
    assert list((await calls.runs.ListRuns(pb.ListRunsRequest())).runs) == []


async def test_an_input_at_the_limit_is_taken_and_above_it_refused_by_size_and_limit(calls: Calls) -> None:
    run_id = (await calls.runs.StartRun(a_start(input=a_payload(b"x" * MIB)))).run_id
    assert (await calls.run(run_id)).input.data == b"x" * MIB

    for size in (MIB + 1, 2 * MIB, 3 * MIB):
        answer = await refused(calls.runs.StartRun(a_start(input=a_payload(b"x" * size))))
        assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PAYLOAD_TOO_LARGE")
        assert dict(answer.about) == {"field": "input", "limit_bytes": str(MIB), "size_bytes": str(size)}
    answer = await refused(calls.runs.StartRun(a_start(input=a_payload(b"x" * 4 * MIB))))
    assert (answer.reason, answer.field) == ("PAYLOAD_TOO_LARGE", "the message"), "with what is around it"
    huge = await refused(calls.runs.StartRun(a_start(input=a_payload(b"x" * 20 * MIB))))
    assert "larger than max" in huge.message
    assert await calls.status(run_id) == "queued"


async def test_a_workflow_that_nobody_registered_needs_a_queue(calls: Calls, open_worker: OpenWorker) -> None:
    answer = await refused(calls.runs.StartRun(a_start(queue="")))
    assert (answer.code, answer.reason) == (grpc.StatusCode.NOT_FOUND, "WORKFLOW_NOT_FOUND")
    assert dict(answer.about) == {"workflow": "w"}
    assert (await calls.runs.StartRun(a_start(queue="q"))).created

    await open_worker(a_definition("w", "its own queue", max_attempts=7), slot_limit=0)

    run = await calls.run((await calls.runs.StartRun(a_start(queue=""))).run_id)
    assert (run.queue, run.max_attempts) == ("its own queue", 7)


# ---- what is started ----


async def test_a_run_is_on_record_as_it_was_asked_for(calls: Calls) -> None:
    given = payload_pb2.Payload(data=b"\x00\xff", content_type="text/x", metadata={"enc": "aes", "k": ""})
    before_ms = time.time() * 1000
    start = a_start(input=given, idempotency_key="key", priority=-5, max_attempts=4)

    answer = await calls.runs.StartRun(start)

    assert (answer.created, answer.input_differs) == (True, False)
    run = await calls.run(answer.run_id)
    assert run.run_id == answer.run_id
    assert (run.workflow, run.queue, run.status) == ("w", "q", run_pb2.RUN_STATUS_QUEUED)
    assert (run.input, run.idempotency_key, run.priority, run.max_attempts) == (given, "key", -5, 4)
    assert (run.attempt, run.delivery_count, run.losses, run.parent_run_id) == (0, 0, 0, "")
    assert abs(run.create_time.ToMilliseconds() - before_ms) < 5000
    unset = ("output", "failure", "available_time", "start_time", "finish_time", "cancel_request_time")
    assert [name for name in unset if run.HasField(name)] == []


async def test_a_run_without_an_input_gets_an_empty_object_and_one_attempt(calls: Calls) -> None:
    run = await calls.run((await calls.runs.StartRun(a_start())).run_id)

    assert (run.input.data, run.input.content_type, run.max_attempts) == (b"{}", "application/json", 1)


async def test_an_empty_input_is_an_input(calls: Calls) -> None:
    run = await calls.run((await calls.runs.StartRun(a_start(input=a_payload(b"")))).run_id)

    assert run.HasField("input")
    assert run.input.data == b""


@pytest.mark.parametrize("seconds", [YEAR_1, -1, 0, 1], ids=["year 1", "1969", "1970", "a second later"])
async def test_a_time_in_the_past_starts_now(calls: Calls, seconds: int) -> None:
    run = await calls.run((await calls.runs.StartRun(a_start(available_time=Timestamp(seconds=seconds)))).run_id)

    assert run.status == run_pb2.RUN_STATUS_QUEUED
    assert not run.HasField("available_time")


async def test_a_run_for_the_year_9999_waits_until_then(calls: Calls) -> None:
    last = Timestamp(seconds=YEAR_9999, nanos=999_000_000)

    run = await calls.run((await calls.runs.StartRun(a_start(available_time=last))).run_id)

    assert (run.status, run.available_time) == (run_pb2.RUN_STATUS_SCHEDULED, last)


async def test_a_run_that_is_due_in_a_moment_is_queued_then_and_no_longer_has_a_time(calls: Calls) -> None:
    at_ms = int(time.time() * 1000) + 300
    at = Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)
    run_id = (await calls.runs.StartRun(a_start(available_time=at))).run_id
    assert (await calls.run(run_id)).available_time == at

    run = await calls.run_in(run_id, "queued", within=2)

    assert time.time() * 1000 >= at_ms
    assert not run.HasField("available_time")


# ---- once ----


async def test_a_call_repeated_with_its_request_id_answers_the_same_run_as_created(
    start_gateway: StartGateway, calls_to: CallsTo
) -> None:
    one, other = calls_to(await start_gateway()), calls_to(await start_gateway())
    start = a_start(request_id="request 1", input=a_payload(b"1"))

    answers = await asyncio.gather(*(calls.runs.StartRun(start) for calls in (one, other) for _ in range(10)))

    assert {(answer.run_id, answer.created) for answer in answers} == {(answers[0].run_id, True)}
    other_id = (await one.runs.StartRun(a_start(request_id="request 2"))).run_id
    assert other_id != answers[0].run_id
    assert (await one.run(answers[0].run_id)).input.data == b"1"
    assert len((await one.runs.ListRuns(pb.ListRunsRequest())).runs) == 2


async def test_without_request_id_and_key_every_call_starts_a_run(calls: Calls) -> None:
    answers = [await calls.runs.StartRun(a_start()) for _ in range(3)]

    assert len({answer.run_id for answer in answers}) == 3


async def test_one_idempotency_key_is_one_run_however_many_ask_at_once(
    start_gateway: StartGateway, calls_to: CallsTo
) -> None:
    one, other = calls_to(await start_gateway()), calls_to(await start_gateway())

    answers = await asyncio.gather(
        *(calls.runs.StartRun(a_start(idempotency_key="k")) for calls in (one, other) for _ in range(25))
    )

    assert len({answer.run_id for answer in answers}) == 1
    assert [answer.created for answer in answers].count(True) == 1


async def test_a_key_answers_its_run_whatever_became_of_it_and_says_when_the_input_differs(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    first = await calls.runs.StartRun(a_start(idempotency_key="k", input=a_payload(b"1")))
    await worker.do(a_result(await worker.take()))

    same = await calls.runs.StartRun(a_start(idempotency_key="k", input=a_payload(b"1")))
    differs = await calls.runs.StartRun(a_start(idempotency_key="k", input=a_payload(b"2")))

    assert (same.run_id, same.created, same.input_differs) == (first.run_id, False, False)
    assert (differs.run_id, differs.created, differs.input_differs) == (first.run_id, False, True)


async def test_a_caller_may_ask_that_other_input_under_its_key_is_refused(calls: Calls) -> None:
    reject = pb.INPUT_MISMATCH_REJECT
    first = await calls.runs.StartRun(a_start(idempotency_key="k", input=a_payload(b"1"), on_input_mismatch=reject))

    same = await calls.runs.StartRun(a_start(idempotency_key="k", input=a_payload(b"1"), on_input_mismatch=reject))
    answer = await refused(
        calls.runs.StartRun(a_start(idempotency_key="k", input=a_payload(b"2"), on_input_mismatch=reject))
    )

    assert (same.run_id, same.created) == (first.run_id, False)
    assert (answer.code, answer.reason) == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    assert dict(answer.about)["run_id"] == first.run_id


async def test_keys_belong_to_their_workflow_and_no_text_makes_two_of_them_one(calls: Calls) -> None:
    pairs = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a", "b"),
        ("a:", "b"),
        ("1:a", "b"),
        ("a", "1:b"),
        ("a b", "c"),
        ("a", "b c"),
    ]

    answers = [await calls.runs.StartRun(a_start(workflow=name, idempotency_key=key)) for name, key in pairs]

    assert len({answer.run_id for answer in answers}) == len(pairs)
    assert all(answer.created for answer in answers)


async def test_a_key_is_free_again_when_its_window_is_over_and_every_hit_renews_it(
    calls: Calls, redis: RedisCommand, keys: Keys
) -> None:
    start = a_start(idempotency_key="k", idempotency_ttl=Duration(nanos=WINDOW_MS * 1_000_000))

    async def passes(at_ms: int) -> None:
        """Returns when the clock of Redis, by which windows are over, has passed this time."""

        async def has_passed() -> bool:
            seconds, microseconds = await redis("TIME")
            return int(seconds) * 1000 + int(microseconds) // 1000 > at_ms

        await eventually(has_passed)

    async def end_of_window() -> int:
        return int(await redis("HGET", keys.run(first.run_id), "keyExpiresAt"))

    first = await calls.runs.StartRun(start)
    first_end = await end_of_window()
    await passes(first_end - WINDOW_MS // 2)
    hit = await calls.runs.StartRun(start)
    await passes(first_end)
    renewed = await calls.runs.StartRun(start)
    assert {first.run_id} == {hit.run_id, renewed.run_id}

    await passes(await end_of_window())

    after = await calls.runs.StartRun(start)
    assert after.created
    assert after.run_id != first.run_id


# ---- many ----


async def test_a_thousand_starts_are_answered_in_their_order_with_the_invalid_ones_in_their_places(
    calls: Calls,
) -> None:
    bad = {number: fields for number, (fields, _) in zip(range(0, 1000, 40), INVALID.values(), strict=False)}
    starts = [
        a_start(**bad.get(number, {}), **({} if number in bad else {"priority": number % 7})) for number in range(1000)
    ]

    answer = await calls.runs.BatchStartRuns(pb.BatchStartRunsRequest(runs=starts))

    assert len(answer.results) == 1000
    assert [n for n, result in enumerate(answer.results) if result.WhichOneof("result") == "refused"] == sorted(bad)
    started = {n: result.started for n, result in enumerate(answer.results) if n not in bad}
    assert len({one.run_id for one in started.values()}) == 1000 - len(bad)
    for number in (1, 500, 999):
        assert (await calls.run(started[number].run_id)).priority == number % 7


async def test_a_batch_meets_its_own_keys_and_request_ids(calls: Calls) -> None:
    starts = [
        a_start(idempotency_key="k"),
        a_start(idempotency_key="k"),
        a_start(request_id="r"),
        a_start(request_id="r"),
    ]

    answer = await calls.runs.BatchStartRuns(pb.BatchStartRunsRequest(runs=starts))

    by_key, again, by_request, repeated = (result.started for result in answer.results)
    assert (by_key.run_id, by_key.created, again.created) == (again.run_id, True, False)
    assert (by_request.run_id, by_request.created, repeated.created) == (repeated.run_id, True, True)


async def test_an_empty_batch_starts_nothing_and_one_over_a_thousand_is_refused_as_a_whole(
    gateway: Gateway, calls: Calls
) -> None:
    assert list((await calls.runs.BatchStartRuns(pb.BatchStartRunsRequest())).results) == []

    answer = await refused(calls.runs.BatchStartRuns(pb.BatchStartRunsRequest(runs=[a_start()] * 1001)))

    assert (answer.code, answer.reason, answer.field) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", "runs")
    assert list((await calls.runs.ListRuns(pb.ListRunsRequest())).runs) == []
    assert gateway.telemetry.counters["faults"] == 0
