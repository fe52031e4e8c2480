"""Sleeping: what the gateway is asked for, and how long that is by whose clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.sdk.messages import forbids_retry, kind_of, ok, open_wait, resolved, value_of, wait_over
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

CEST = timezone(timedelta(hours=2))


def over_at_once(item: Item) -> pb.ItemResult:
    if not isinstance(item, pb.Suspension):
        return ok(item)
    return resolved(item, *(wait_over("timer", wait.step_name) for wait in item.waits))


@workflow(name="naps")
async def naps(ctx: Context) -> str:
    assert await ctx.step.sleep("nap", 1.5, minutes=2, hours=3, days=4) is None  # type: ignore[func-returns-value]  # that it is None
    return "rested"


@workflow(name="naps-in-a-thread")
def naps_in_a_thread(ctx: BlockingContext) -> str:
    assert ctx.step.sleep("nap", 1.5, minutes=2, hours=3, days=4) is None  # type: ignore[func-returns-value]  # that it is None
    return "rested"


BOTH = pytest.mark.parametrize("name", ["naps", "naps-in-a-thread"])


@BOTH
async def test_a_sleep_asks_for_its_length_and_leaves_it_to_the_gateway_from_when_that_counts(
    name: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, naps, naps_in_a_thread)
    scripted.script.item = over_at_once
    token = scripted.assign(name)
    assert value_of((await scripted.log.result(token)).output) == "rested"
    [wait] = (await scripted.log.suspension(token)).waits
    assert (wait.step_name, wait.step_seq, wait.group, wait.WhichOneof("wait")) == ("nap", 1, "", "timer")
    length = timedelta(days=4, hours=3, minutes=2, seconds=1.5)
    assert wait.timer.delay.ToTimedelta() == length and not wait.timer.HasField("until_time")
    assert scripted.log.said(token) == ["Suspension", "RunResult"]


@BOTH
@pytest.mark.parametrize("attempt", [1, 3])
async def test_a_sleep_that_is_over_on_record_is_over_in_every_attempt(
    attempt: int, name: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, naps, naps_in_a_thread)
    token = scripted.assign(name, attempt=attempt, max_attempts=3, steps=[wait_over("timer", "nap")])
    assert value_of((await scripted.log.result(token)).output) == "rested"
    assert scripted.log.said(token) == ["RunResult"]


async def test_a_sleep_that_is_open_on_record_is_asked_for_as_the_same_step(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, naps)
    scripted.script.item = over_at_once
    token = scripted.assign("naps", steps=[open_wait("timer", "nap", seq=4)])
    [wait] = (await scripted.log.suspension(token)).waits
    assert (wait.step_name, wait.step_seq) == ("nap", 4)
    assert value_of((await scripted.log.result(token)).output) == "rested"


@pytest.mark.parametrize("seconds", [0, -5, -0.001])
async def test_a_sleep_of_no_length_is_one_of_zero(
    seconds: float, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="blinks")
    async def blinks(ctx: Context) -> None:
        await ctx.step.sleep("blink", seconds)

    await connect(scripted, blinks)
    scripted.script.item = over_at_once
    token = scripted.assign("blinks")
    assert (await scripted.log.result(token)).HasField("output")
    [wait] = (await scripted.log.suspension(token)).waits
    assert wait.timer.HasField("delay") and wait.timer.delay.ToMicroseconds() == 0


@pytest.mark.parametrize("moment", [datetime(2031, 5, 6, 7, 8, 9, 10, tzinfo=CEST), datetime(1999, 1, 1, tzinfo=UTC)])
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_a_sleep_until_a_moment_asks_for_that_moment_although_it_may_have_passed(
    kind: str, moment: datetime, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="until-async")
    async def until(ctx: Context) -> None:
        await ctx.step.sleep_until("nap", moment)

    @workflow(name="until-def")
    def until_blocking(ctx: BlockingContext) -> None:
        ctx.step.sleep_until("nap", moment)

    await connect(scripted, until, until_blocking)
    scripted.script.item = over_at_once
    token = scripted.assign(f"until-{kind}")
    assert (await scripted.log.result(token)).HasField("output")
    [wait] = (await scripted.log.suspension(token)).waits
    assert wait.timer.until_time.ToDatetime(UTC) == moment and not wait.timer.HasField("delay")


@pytest.mark.parametrize(
    ("ask", "word"),
    [
        (lambda step: step.sleep("nap", float("nan")), "the length of a sleep"),
        (lambda step: step.sleep("nap", days=40_000), "the length of a sleep"),
        (lambda step: step.sleep("", 1), "step name"),
        (lambda step: step.sleep_until("nap", datetime(2031, 1, 1)), "aware"),  # noqa: DTZ001  # that is the point
        (lambda step: step.sleep_until("nap", 1_900_000_000), "aware"),
    ],
)
async def test_a_sleep_that_makes_no_sense_is_not_asked_for(
    ask: Any, word: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="senseless")
    async def senseless(ctx: Context) -> None:
        await ask(ctx.step)

    await connect(scripted, senseless)
    token = scripted.assign("senseless", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert failure.type == "InvalidInputError" and word in failure.message
    assert kind_of(failure) == "validation" and forbids_retry(failure)
    assert scripted.log.said(token) == ["RunResult"]


@pytest.mark.parametrize("unit", ["seconds", "minutes", "hours", "days"])
async def test_a_length_that_is_no_number_is_refused_by_the_name_of_its_unit(
    unit: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    given: dict[str, Any] = {unit: timedelta(days=1)}

    @workflow(name="naps-wrongly")
    async def naps_wrongly(ctx: Context) -> None:
        await ctx.step.sleep("nap", **given)

    await connect(scripted, naps_wrongly)
    failure = (await scripted.log.result(scripted.assign("naps-wrongly"))).failure
    assert f"{unit} must be a number; got datetime.timedelta(days=1)" in failure.message
