"""Long delays before another try of a step: a wait of the run, which is set aside for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, RetryAfterError, RetryPolicy, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import (
    cancellation,
    failed,
    ok,
    open_wait,
    parked,
    resolution,
    resolved,
    suspended,
    value_of,
    wait_over,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

SLOWLY = RetryPolicy(max_attempts=3, initial=60, multiplier=2, maximum=1000, jitter=0)
calls: list[int] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    calls.clear()


def breaks() -> None:
    calls.append(len(calls) + 1)
    raise ConnectionError(f"no {len(calls)}")


@workflow(name="tries-async")
async def tries(ctx: Context) -> None:
    await ctx.step.run("it", breaks, retry=SLOWLY)


@workflow(name="tries-def")
def tries_blocking(ctx: BlockingContext) -> None:
    ctx.step.run("it", breaks, retry=SLOWLY)


BOTH = pytest.mark.parametrize("kind", ["async", "def"])


def over_at_once(item: Item) -> pb.ItemResult:
    if not isinstance(item, pb.Suspension):
        return ok(item)
    return resolved(item, *(wait_over("timer", wait.step_name) for wait in item.waits))


def setting_aside(item: Item) -> pb.ItemResult:
    return suspended(item) if isinstance(item, pb.Suspension) else ok(item)


def tried(count: int) -> pb.StepSnapshot:
    """The step as it is on record after so many tries in vain."""
    step = failed("it", "ConnectionError", f"no {count}", is_final=False)
    step.tries = count
    return step


@BOTH
async def test_the_run_waits_for_the_next_try_under_a_name_that_says_so(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, tries, tries_blocking)
    scripted.script.item = over_at_once
    token = scripted.assign(f"tries-{kind}", max_attempts=2)
    assert (await scripted.log.result(token)).failure.message == "no 3"
    pauses = [wait for it in scripted.log.suspensions(token) for wait in it.message.waits]
    assert [(wait.step_name, wait.step_seq, wait.timer.delay.ToSeconds()) for wait in pauses] == [
        ("it (before try 2)", 2, 60),
        ("it (before try 3)", 3, 120),
    ]
    assert scripted.log.said(token) == ["StepReport", "Suspension"] * 2 + ["StepReport", "RunResult"]


@BOTH
async def test_the_handler_ends_when_the_run_is_set_aside_for_the_pause(
    kind: str, scripted: ScriptedGateway, connect_without_parking: StartWorker
) -> None:
    await connect_without_parking(scripted, tries, tries_blocking)
    scripted.script.item = setting_aside
    token = scripted.assign(f"tries-{kind}")
    await scripted.log.suspension(token)
    await eventually(lambda: scripted.log.held() == {})
    assert scripted.log.said(token) == ["StepReport", "Suspension"] and calls == [1]


@BOTH
async def test_the_replay_after_the_pause_tries_at_once_and_goes_on_counting(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, tries, tries_blocking)
    scripted.script.item = setting_aside
    steps = [tried(2), wait_over("timer", "it (before try 2)", seq=2), wait_over("timer", "it (before try 3)", seq=3)]
    token = scripted.assign(f"tries-{kind}", steps=steps)
    await scripted.log.result(token)
    report = await scripted.log.report(token, "it")
    assert (report.tries, report.final, len(calls)) == (3, True, 1)
    assert scripted.log.said(token) == ["StepReport", "RunResult"]


@BOTH
async def test_a_replay_while_the_pause_is_not_over_goes_on_waiting(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """The worker has crashed, or another wait of the run has woken it."""
    await connect(scripted, tries, tries_blocking)
    scripted.script.item = lambda item: None if isinstance(item, pb.Suspension) else ok(item)
    steps = [tried(1), open_wait("timer", "it (before try 2)", seq=2)]
    token = scripted.assign(f"tries-{kind}", delivery_count=2, steps=steps)
    asked = await scripted.log.suspension(token)
    assert [(wait.step_name, wait.step_seq) for wait in asked.waits] == [("it (before try 2)", 2)]
    assert calls == []
    scripted.answer(resolved(asked, wait_over("timer", "it (before try 2)")))
    assert (await scripted.log.report(token, "it")).tries == 2


async def test_a_replay_after_a_crash_before_the_pause_began_tries_at_once(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, tries)
    scripted.script.item = setting_aside
    token = scripted.assign("tries-async", delivery_count=2, steps=[tried(1)])
    assert (await scripted.log.report(token, "it")).tries == 2


@BOTH
async def test_another_attempt_pauses_again(kind: str, scripted: ScriptedGateway, connect: StartWorker) -> None:
    """What is over stays over in every attempt, so the pauses of the one before are of no use."""
    await connect(scripted, tries, tries_blocking)
    scripted.script.item = setting_aside
    steps = [
        failed("it", "ConnectionError", "no 3"),
        wait_over("timer", "it (before try 2)", seq=2),
        wait_over("timer", "it (before try 3)", seq=3),
    ]
    token = scripted.assign(f"tries-{kind}", attempt=2, max_attempts=2, steps=steps)
    [pause] = (await scripted.log.suspension(token)).waits
    assert pause.step_name == "it (attempt 2, before try 2)" and pause.timer.delay.ToSeconds() == 60
    assert calls == [1]


async def test_the_length_that_the_function_asks_for_is_waited_out(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    def limited() -> None:
        raise RetryAfterError(delay=3600)

    @workflow(name="limited")
    async def handler(ctx: Context) -> None:
        await ctx.step.run("it", limited, retry=SLOWLY)

    await connect(scripted, handler)
    scripted.script.item = setting_aside
    [pause] = (await scripted.log.suspension(scripted.assign("limited"))).waits
    assert pause.timer.delay.ToSeconds() == 3600


async def test_while_a_sibling_is_at_work_the_pause_begins_and_the_try_follows_when_it_is_over(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    def breaks_once() -> str:
        calls.append(len(calls) + 1)
        if len(calls) == 1:
            raise ConnectionError
        return "at last"

    @workflow(name="both")
    async def both(ctx: Context) -> list[Any]:
        return list(
            await asyncio.gather(ctx.step.run("it", breaks_once, retry=SLOWLY), ctx.step.run("slow", go_on.wait))
        )

    await connect(scripted, both)
    token = scripted.assign("both")
    await eventually(lambda: scripted.log.begun(token))
    assert [wait.step_name for wait in scripted.log.begun(token)] == ["it (before try 2)"]
    scripted.send(wait_resolutions=[resolution(token, wait_over("timer", "it (before try 2)"))])
    await eventually(lambda: len(calls) == 2)
    go_on.set()
    assert value_of((await scripted.log.result(token)).output) == ["at last", True]
    assert scripted.log.suspensions(token) == []


@BOTH
@pytest.mark.parametrize("is_parked", [True, False], ids=["parked", "while it is asked"])
async def test_a_cancel_during_the_pause_ends_the_handler(
    is_parked: bool, kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, tries, tries_blocking)
    scripted.script.item = lambda item: (
        ok(item) if not isinstance(item, pb.Suspension) else parked(item) if is_parked else None
    )
    token = scripted.assign(f"tries-{kind}")
    await scripted.log.suspension(token)
    if is_parked:
        await eventually(lambda: scripted.log.held() == {token: "PARKED"})
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.result(token, within=1)).canceled.reason == pb.CANCELED_REASON_REQUESTED
    assert calls == [1]


@BOTH
async def test_a_parked_handler_tries_again_where_it_is(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, tries, tries_blocking)
    scripted.script.item = lambda item: parked(item) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign(f"tries-{kind}")
    for number in (2, 3):
        await scripted.log.suspension(token, number - 1)
        await eventually(lambda: scripted.log.held() == {token: "PARKED"})
        scripted.send(wait_resolutions=[resolution(token, wait_over("timer", f"it (before try {number})"))])
    assert (await scripted.log.result(token)).failure.message == "no 3"
    assert calls == [1, 2, 3]
