"""Redis is there, and refuses calls for a while: callers and workers are told to come again, nobody is cut off, the log
says once what is refused and once that it is over.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from urllib.parse import quote

import grpc
import pytest
import pytest_asyncio

from redflow_sdk.proto.api.v1 import run_service_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.gateway import Gateway
from redflow_server.store import pipeline
from redflow_server.store.refusals import refusal_of
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.redis_refusals import REFUSALS
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import CallsTo, OpenWorker
from tests.rpc.items import a_result, a_step
from tests.rpc.scripted_worker import ScriptedWorker

WORKER_SERVICE = "redflow.worker.v1.WorkerService"
A_START = run_service_pb2.StartRunRequest(workflow="w", queue="q")
PASSWORD = "a#b@c/d%25"


async def starts_are_refused_for_now(calls: Calls) -> None:
    start = await refused(calls.runs.StartRun(A_START))
    assert (start.code, start.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert start.retry_delay_ms


async def reports_are_refused_for_now(worker: ScriptedWorker, *items: pb.StepReport | pb.RunResult) -> None:
    for item in items:
        answer = await worker.do(item)
        assert (answer.status, answer.reason) == (pb.ITEM_STATUS_UNAVAILABLE, "STORE_UNAVAILABLE")
        assert answer.retry_delay.ToMilliseconds() > 0


async def health_becomes(calls: Calls, wanted: str) -> None:
    async def is_so() -> bool:
        return await calls.health_of(WORKER_SERVICE) == wanted

    await eventually(is_so, within=8, saying=f"not {wanted}")


async def work_goes_on(calls: Calls, worker: ScriptedWorker, *items: pb.StepReport | pb.RunResult) -> None:
    """The items are taken when they come again, and so is the next run, in the same session."""

    async def is_started() -> bool:
        try:
            return bool(await calls.start())
        except grpc.aio.AioRpcError:
            return False

    await eventually(is_started, within=8)
    for item in items:
        await eventually(lambda item=item: _is_taken(worker, item), within=3)
    assert (await worker.do(a_result(await worker.assignment(within=8)))).status == pb.ITEM_STATUS_OK
    assert not worker.ended


async def _is_taken(worker: ScriptedWorker, item: pb.StepReport | pb.RunResult) -> bool:
    return (await worker.do(item)).status == pb.ITEM_STATUS_OK


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "redflow.store"]


@pytest.mark.parametrize("code", REFUSALS)
async def test_what_is_refused_comes_again_and_is_done_once(
    calls: Calls,
    open_worker: OpenWorker,
    redis: RedisCommand,
    redis_url: str,
    code: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    await worker.quiet()
    step, result = a_step(assignment), a_result(assignment, steps_recorded=1)

    async with REFUSALS[code](redis, redis_url):
        await starts_are_refused_for_now(calls)
        await reports_are_refused_for_now(worker, step, result)
        await health_becomes(calls, "NOT_SERVING")
        assert await calls.health_of("") == "SERVING", "to start it anew would not help"

    await work_goes_on(calls, worker, step, result)
    await health_becomes(calls, "SERVING")
    assert await calls.status(run_id) == "succeeded"
    assert (await calls.run(run_id)).losses == 0
    lines = lines_of(caplog)
    assert len([line for line in lines if line.startswith("redis refuses calls: ") and code in line]) == 1, lines
    assert lines.count(f"redis refuses nothing with {code} any more") == 1, lines
    assert not [record for record in caplog.records if record.exc_info], "a traceback"


async def test_that_memory_is_full_and_that_there_is_room_again_is_said_once(
    gateway: Gateway, calls: Calls, redis: RedisCommand, caplog: pytest.LogCaptureFixture
) -> None:
    await redis("CONFIG", "SET", "maxmemory", 1)
    try:
        for _ in range(3):
            assert (await refused(calls.runs.StartRun(A_START))).reason == "STORE_FULL"
        assert await gateway._report_health() is False
        assert await calls.health_of(WORKER_SERVICE) == "SERVING", "workers are needed to make room"
    finally:
        await redis("CONFIG", "SET", "maxmemory", 0)
    await calls.start()
    assert [line.partition(":")[0] for line in lines_of(caplog)] == ["redis is full", "redis has room again"]


async def test_the_end_of_a_refusal_is_found_out_when_nobody_who_was_refused_comes_again(
    calls: Calls, redis: RedisCommand, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        async with REFUSALS["NOREPLICAS"](redis, redis_url):
            await starts_are_refused_for_now(calls)
            await health_becomes(calls, "NOT_SERVING")
        await health_becomes(calls, "SERVING")
    each = ["redis refuses calls", "redis refuses nothing with NOREPLICAS any more"]
    assert [line.partition(":")[0] for line in lines_of(caplog)] == 2 * each


async def test_that_there_is_room_again_is_found_out_when_nobody_starts_anything(
    calls: Calls, redis: RedisCommand, caplog: pytest.LogCaptureFixture
) -> None:
    await redis("CONFIG", "SET", "maxmemory", 1)
    try:
        assert (await refused(calls.runs.StartRun(A_START))).reason == "STORE_FULL"
    finally:
        await redis("CONFIG", "SET", "maxmemory", 0)
    await eventually(lambda: "redis has room again" in lines_of(caplog), within=8)


async def test_while_redis_is_silent_no_traffic_is_wanted_and_it_is_said(
    calls: Calls, redis: RedisCommand, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await health_becomes(calls, "SERVING")
    monkeypatch.setattr(pipeline, "SILENT_S", 0.5)
    await redis("CLIENT", "PAUSE", 60_000, "WRITE")
    try:
        start = asyncio.ensure_future(calls.start())
        await health_becomes(calls, "NOT_SERVING")
    finally:
        await redis("CLIENT", "UNPAUSE")
    assert await start
    await health_becomes(calls, "SERVING")
    assert lines_of(caplog) == ["redis has not answered for 0.5 s", "redis answers again"]


async def test_a_heartbeat_that_is_refused_when_its_session_has_gone_is_no_stray_error(
    gateway: Gateway, calls: Calls, open_worker: OpenWorker, redis: RedisCommand, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await open_worker("w")
    await calls.start()
    await worker.take()
    await worker.quiet()
    await redis("CLIENT", "PAUSE", 60_000, "WRITE")
    try:
        await worker.say(heartbeat=pb.Heartbeat(sequence=1, leases=worker.inventory()))
        await worker.cut()
        await eventually(lambda: not gateway._sessions._open, saying="the session is still there")
        await redis("REPLICAOF", "127.0.0.1", 1)
    finally:
        await redis("CLIENT", "UNPAUSE")
    try:
        await eventually(lambda: lines_of(caplog))
        gc.collect()
    finally:
        await redis("REPLICAOF", "NO", "ONE")
    assert not [record for record in caplog.records if record.name == "asyncio"]


# ---- the user of the gateway ----


@pytest_asyncio.fixture
async def limited(redis: RedisCommand, redis_url: str, start_gateway: StartGateway) -> AsyncIterator[Gateway]:
    """A gateway whose user may do everything, so far."""
    await redis("ACL", "SETUSER", "limited", "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    user = f"limited:{quote(PASSWORD, safe='')}@"
    scheme, _, rest = redis_url.partition("://")
    yield await start_gateway(redis_url=f"{scheme}://{user}{rest.rpartition('@')[2]}")
    await redis("ACL", "DELUSER", "limited")


@pytest.mark.parametrize("right", ["evalsha", "hset"])
async def test_a_right_that_is_taken_and_given_back_costs_no_run(
    limited: Gateway,
    calls_to: CallsTo,
    open_worker: OpenWorker,
    redis: RedisCommand,
    right: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls, worker = calls_to(limited), await open_worker("w", at=limited)
    await calls.start()
    assignment = await worker.take()
    await worker.quiet()
    result = a_result(assignment)
    await redis("ACL", "SETUSER", "limited", f"-{right}")

    await starts_are_refused_for_now(calls)
    await reports_are_refused_for_now(worker, result)

    await redis("ACL", "SETUSER", "limited", f"+{right}")
    await work_goes_on(calls, worker, result)
    assert "redis refuses nothing with NOPERM any more" in lines_of(caplog)
    assert not [record for record in caplog.records if record.exc_info], "a traceback"


async def test_a_password_that_is_changed_while_it_runs_is_said_and_calls_fail_until_it_is_right(
    limited: Gateway,
    calls_to: CallsTo,
    open_worker: OpenWorker,
    redis: RedisCommand,
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls, worker = calls_to(limited), await open_worker("w", at=limited)
    await calls.start()
    assignment = await worker.take()
    await worker.quiet()
    await redis("ACL", "SETUSER", "limited", "resetpass", ">another")
    await calls.start()  # those who are logged in stay so
    result = a_result(assignment)

    await redis("CLIENT", "KILL", "USER", "limited")
    await starts_are_refused_for_now(calls)
    await reports_are_refused_for_now(worker, result)
    await health_becomes(calls, "NOT_SERVING")
    await redis("ACL", "SETUSER", "limited", f">{PASSWORD}")

    await work_goes_on(calls, worker, result)
    assert [line for line in lines_of(caplog) if line.startswith("redis is away: ") and "password" in line]
    assert PASSWORD not in caplog.text


async def test_a_redis_that_asks_for_a_log_in_since_it_was_started_is_away_until_it_does_not(
    calls: Calls, redis: RedisCommand, caplog: pytest.LogCaptureFixture
) -> None:
    await redis("CONFIG", "SET", "requirepass", "secret")
    try:
        await redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await starts_are_refused_for_now(calls)
        await health_becomes(calls, "NOT_SERVING")
    finally:
        await redis("CONFIG", "SET", "requirepass", "")
    await health_becomes(calls, "SERVING")
    await calls.start()
    assert [line for line in lines_of(caplog) if line.startswith("redis is away: ") and "uthenticat" in line]


# ---- how replies are read ----


@pytest.mark.parametrize(
    "reply",
    [
        "READONLY You can't write against a read only replica. script: caee, on @user_script:1.",
        "ERR Error running script (call to f_caee): @user_script:1: @user_script: 1: -READONLY You can't write",
        "@user_script: 1: -MISCONF Redis is configured to save RDB snapshots",
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "ERR The user executing the script can't run this command or subcommand script: caee, on @user_script:1.",
        "NOSCRIPT No matching script.",
        "ERR ACL failure in script: User u has no permissions to run the 'set' command script: on @user_script:1.",
    ],
)
def test_a_refusal_is_told_in_the_words_of_any_version(reply: str) -> None:
    assert getattr(refusal_of(reply), "reason", None) == "STORE_UNAVAILABLE"


@pytest.mark.parametrize(
    "reply",
    [
        "WRONGTYPE Operation against a key holding the wrong kind of value script: caee, on @user_script:1.",
        "ERR user_script:1: attempt to index a nil value script: caee, on @user_script:1.",
        "ERR unknown command 'BUSY '",
    ],
)
def test_a_fault_is_no_refusal(reply: str) -> None:
    assert refusal_of(reply) is None
