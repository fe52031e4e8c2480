"""RunService.ExecuteRuns: one stream on which a caller waits for many runs, which it names as it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest

from redflow_server.engine import client_runs
from redflow_server.gateway import Gateway
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.rpc.calls import Calls
from tests.rpc.conftest import CallsTo, OpenWorker
from tests.rpc.items import a_result
from tests.rpc.run_stream import RunStream

WITHIN_S = 5.0


async def test_each_run_is_told_once_with_its_payloads_when_it_has_ended(
    stream: RunStream, gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", slot_limit=3)
    before, after, never = await calls.start_many(3)
    taken = {one.run_id: one for one in [await worker.take() for _ in range(3)]}
    await worker.do(a_result(taken[before], b'"before"'))
    await stream.want(before, after, never, before)
    [run] = (await stream.read()).runs
    assert (run.run_id, run.output.data) == (before, b'"before"')

    await worker.do(a_result(taken[after], b'"after"'))

    [run] = (await stream.read()).runs
    assert (run.run_id, run.output.data) == (after, b'"after"')
    assert gateway._waiters.count == 1, "only the run that has not ended is waited for"


async def test_runs_are_named_while_others_are_waited_for_and_heard_of_through_another_gateway(
    start_gateway: StartGateway,
    calls_to: CallsTo,
    open_stream: Callable[[Calls], RunStream],
    open_worker: OpenWorker,
) -> None:
    here, there = await start_gateway(), await start_gateway()
    calls = calls_to(here)
    worker = await open_worker("w", at=there, slot_limit=100)
    run_ids = await calls.start_many(100)
    taken = {one.run_id: one for one in [await worker.take() for _ in range(100)]}
    stream = open_stream(calls)
    for at in range(0, 100, 10):
        await stream.want(*run_ids[at : at + 10])
    await eventually(lambda: here._waiters.count == 100)

    for run_id in run_ids:
        await worker.do(a_result(taken[run_id]))

    assert sorted(await stream.ended(100)) == sorted(run_ids)


async def test_a_run_that_does_not_exist_is_told_as_such_and_holds_up_no_other(
    stream: RunStream, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    await worker.do(a_result(await worker.take()))

    await stream.want("run_there_is_none", "no id at all: \N{SNOWMAN}", run_id)

    unknown: list[str] = []
    runs: list[str] = []
    while len(unknown) + len(runs) < 3:
        response = await stream.read()
        unknown += response.unknown_run_ids
        runs += [run.run_id for run in response.runs]
    assert (sorted(unknown), runs) == (["no id at all: \N{SNOWMAN}", "run_there_is_none"], [run_id])


async def test_one_that_is_forgotten_is_not_told_and_may_be_named_again(
    stream: RunStream, gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", slot_limit=2)
    forgotten, other = await calls.start_many(2)
    taken = {one.run_id: one for one in [await worker.take() for _ in range(2)]}
    await stream.want(forgotten, other)
    await stream.forget(forgotten, "never named")
    await eventually(lambda: gateway._waiters.count == 1)
    for run_id in (forgotten, other):
        await worker.do(a_result(taken[run_id]))
    assert await stream.ended(1) == [other]

    await stream.want(forgotten)

    assert await stream.ended(1) == [forgotten]


async def test_when_the_caller_has_closed_its_side_the_stream_ends_with_the_last_run(
    stream: RunStream, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    await stream.want(run_id)
    await stream.call.done_writing()
    await worker.do(a_result(assignment))

    assert await stream.ended(1) == [run_id]
    assert await asyncio.wait_for(stream.call.read(), WITHIN_S) is grpc.aio.EOF
    assert await stream.call.code() is grpc.StatusCode.OK


async def test_a_stream_that_breaks_off_waits_for_nothing_any_more(
    stream: RunStream, gateway: Gateway, calls: Calls
) -> None:
    await stream.want(*await calls.start_many(20))
    await eventually(lambda: gateway._waiters.count == 20)

    stream.call.cancel()

    await eventually(lambda: gateway._waiters.count == 0)


async def test_of_more_than_there_is_room_for_it_is_said_that_they_are_not_told(
    stream: RunStream, gateway: Gateway, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_runs, "MAX_WANTED", 3)
    run_ids = await calls.start_many(5)
    await stream.want(*run_ids)

    response = await stream.read()

    assert list(response.untold_run_ids) == run_ids[3:]
    assert gateway._waiters.count == 3
