"""Races, and runs that steps start without waiting for them, by the messages of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redflow_sdk.proto.v1 import failure_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker, started
from tests.rpc.items import a_failed_step, a_raised, a_result, a_step
from tests.rpc.scripted_worker import Item, ScriptedWorker, a_definition
from tests.rpc.wait_items import (
    CHILD,
    a_child_wait,
    a_command,
    a_parking,
    a_sleep,
    a_start,
    a_suspension,
    a_token_wait,
    an_event_wait,
    some_waits,
)

OK = pb.ITEM_STATUS_OK
SUCCEEDED = run_pb2.STEP_STATUS_SUCCEEDED
WITHDRAWN = run_pb2.STEP_STATUS_WITHDRAWN


async def statuses(calls: Calls, run_id: str) -> dict[str, run_pb2.StepStatus.ValueType]:
    """How each step of a run stands."""
    return {step.step_name: step.status for step in await calls.steps(run_id)}


async def children_of(open_worker: OpenWorker) -> ScriptedWorker:
    """A worker of the runs that steps start."""
    return await open_worker(a_definition(CHILD, "children"), owner="owner-2")


# ---- races of waits ----


@pytest.mark.parametrize("how", ["suspended", "parked", "begun"])
async def test_the_first_wait_of_a_race_to_end_withdraws_the_others(
    calls: Calls, open_worker: OpenWorker, how: str
) -> None:
    worker, run = await started(calls, open_worker)
    children = await children_of(open_worker)
    waits = [a_sleep("a", group="race"), an_event_wait("b", group="race"), a_child_wait("c")]
    waits[2].group = "race"
    item = {"suspended": a_suspension, "parked": a_parking, "begun": some_waits}[how](run, *waits, a_sleep("beside"))
    await worker.do(item)
    child = await children.take()

    await calls.emit("paid")

    if how == "suspended":
        outcomes = {step.step_name: step.status for step in (await worker.take()).steps}
    else:
        outcomes = {(await worker.resolution()).step.step_name: SUCCEEDED}
    assert outcomes["b"] == SUCCEEDED
    expected = {"a": WITHDRAWN, "b": SUCCEEDED, "c": WITHDRAWN, "beside": run_pb2.STEP_STATUS_WAITING}
    assert await statuses(calls, run.run_id) == expected
    await children.until(lambda: children.cancellations, saying="nobody waits for the child any more")
    assert children.cancellations[0].lease_token == child.lease_token


async def test_of_a_race_that_is_decided_when_it_begins_the_rest_does_not_begin(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    children = await children_of(open_worker)
    await calls.emit("paid")
    child = a_child_wait("child")
    child.group = "race"

    answer = await worker.do(some_waits(run, an_event_wait("event", group="race"), child))

    assert {step.step_name: step.status for step in answer.resolutions} == {"event": SUCCEEDED, "child": WITHDRAWN}
    await children.quiet()
    assert children.assignments == []


async def test_a_race_has_one_winner_however_close_they_come(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w", slot_limit=20)
    await calls.start_many(20)
    runs = [await worker.take() for _ in range(20)]
    tokens = []
    for run in runs:
        answer = await worker.do(
            some_waits(run, a_token_wait("token", group="race"), an_event_wait("event", run.run_id, group="race"))
        )
        tokens.append(answer.resolutions[0].token)

    async def both(run: pb.Assignment, token: str) -> None:
        completing = calls.complete_token(token)
        await asyncio.gather(calls.emit(run.run_id), completing, return_exceptions=True)

    await asyncio.gather(*(both(run, token) for run, token in zip(runs, tokens, strict=True)))

    await worker.resolution(20)
    await worker.quiet()
    assert len(worker.resolutions) == 20
    for run in runs:
        assert sorted((await statuses(calls, run.run_id)).values()) == [SUCCEEDED, WITHDRAWN]


# ---- races against a function ----


async def test_a_function_that_wins_withdraws_the_waits_of_its_race(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, a_sleep("a"), an_event_wait("b"), a_sleep("beside")))

    answer = await worker.do(a_step(run, "function", rivals=["a", "b"]))

    assert (answer.status, list(answer.resolutions)) == (OK, [])
    assert await statuses(calls, run.run_id) == {
        "a": WITHDRAWN,
        "b": WITHDRAWN,
        "beside": run_pb2.STEP_STATUS_WAITING,
        "function": SUCCEEDED,
    }


async def test_a_function_that_comes_second_is_recorded_and_told_who_has_won(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, a_sleep("a", group="race"), an_event_wait("b", group="race")))
    await calls.emit("paid", b'"first"')

    answer = await worker.do(a_step(run, "function", rivals=["a", "b"]))

    assert answer.status == OK
    [winner] = answer.resolutions
    assert (winner.step_name, winner.output.data, winner.resolved_seq) == ("b", b'"first"', 1)
    found = await statuses(calls, run.run_id)
    assert found == {"a": WITHDRAWN, "b": SUCCEEDED, "function": SUCCEEDED}


async def test_a_function_that_fails_wins_nothing(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, an_event_wait("b")))

    await worker.do(a_failed_step(run, "function", rivals=["b"]))

    assert (await statuses(calls, run.run_id))["b"] == run_pb2.STEP_STATUS_WAITING
    await calls.emit("paid")
    assert (await worker.resolution()).step.step_name == "b"


# ---- runs that are not waited for ----


async def test_a_step_starts_a_run_and_is_answered_with_its_id(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    children = await children_of(open_worker)

    answer = await worker.do(a_start(run, input={"data": b'{"n":7}'}, priority=3))

    assert answer.status == OK
    [step] = answer.resolutions
    assert (step.step_kind, step.status) == (run_pb2.STEP_KIND_START, SUCCEEDED)
    child = await children.take()
    assert (child.run_id, child.parent_run_id, child.input.data) == (step.child_run_id, run.run_id, b'{"n":7}')
    assert step.output.data == f'"{child.run_id}"'.encode()
    assert (await worker.do(a_result(run, steps_recorded=1))).status == OK
    assert (await children.do(a_result(child))).status == OK


async def test_a_start_that_is_sent_again_starts_nothing_and_is_answered_the_same(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    children = await children_of(open_worker)

    answers = [await worker.do(a_start(run)) for _ in range(3)]

    assert len({answer.resolutions[0].child_run_id for answer in answers}) == 1
    await children.take()
    await children.quiet()
    assert len(children.assignments) == 1


@pytest.mark.parametrize(
    ("policy", "is_canceled"),
    [
        (pb.PARENT_CLOSE_POLICY_UNSPECIFIED, False),
        (pb.PARENT_CLOSE_POLICY_ABANDON, False),
        (pb.PARENT_CLOSE_POLICY_CANCEL, True),
        (77, False),
    ],
)
@pytest.mark.parametrize("end", [a_result, a_raised], ids=["returned", "raised"])
async def test_what_becomes_of_it_when_its_parent_ends_is_as_the_step_has_said(
    calls: Calls, open_worker: OpenWorker, policy: int, is_canceled: bool, end: Callable[..., Item]
) -> None:
    worker, run = await started(calls, open_worker)
    answer = await worker.do(a_start(run, parent_close_policy=policy))
    child_id = answer.resolutions[0].child_run_id

    assert (await worker.do(end(run))).status == OK

    await calls.run_in(child_id, "canceled" if is_canceled else "queued")


async def test_a_run_that_cannot_be_started_fails_its_step_for_ever(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    for _ in range(2):
        answer = await worker.do(a_start(run, workflow="nobody's", queue=""))

        assert answer.status == OK
        [step] = answer.resolutions
        assert (step.status, step.failure.failure_kind) == (
            run_pb2.STEP_STATUS_FAILED,
            failure_pb2.FAILURE_KIND_UNKNOWN_WORKFLOW,
        )
        assert "nobody's" in step.failure.message


async def test_a_wait_under_the_name_of_a_start_is_non_deterministic_and_the_other_way_round(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(a_start(run, "start"))
    await worker.do(some_waits(run, a_sleep("sleep")))

    wait, start = await worker.do(some_waits(run, a_child_wait("start"))), await worker.do(a_start(run, "sleep"))

    for answer, name in ((wait, "start"), (start, "sleep")):
        assert (answer.status, answer.reason) == (pb.ITEM_STATUS_INVALID, "NON_DETERMINISTIC")
        assert repr(name) in answer.message


async def test_a_failure_handler_neither_waits_nor_starts_runs(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker, has_failure_handler=True)
    assert (await worker.do(a_raised(run))).status == pb.ITEM_STATUS_RUN_FAILURE_HANDLER

    items = (a_suspension(run, a_sleep()), some_waits(run, a_sleep()), a_start(run))
    for item in items:
        answer = await worker.do(item)
        assert (answer.status, answer.reason) == (pb.ITEM_STATUS_INVALID, "NOT_ALLOWED"), item
    assert await calls.steps(run.run_id) == []
    worker.held[run.lease_token] = pb.LEASE_STATE_RUNNING


async def test_an_event_of_a_step_reaches_waits_for_it_by_its_key(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, an_event_wait("keyed", "sent", key="k"), an_event_wait("plain", "sent")))

    await worker.do(a_command(run, "emit", emit_event=pb.EmitCommand(event_name="sent", key="k")))

    assert (await worker.resolution()).step.step_name == "keyed"
    await worker.quiet()
    assert len(worker.resolutions) == 1
