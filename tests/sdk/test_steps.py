"""Steps: a value counts when the gateway has it, what is on record is not executed, names are used once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from redflow_sdk import BlockingContext, Context, StepFailedError, workflow
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import by_reference, failed, forbids_retry, kind_of, ok, payload, succeeded, value_of
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item


def withholding_reports(item: Item) -> pb.ItemResult | None:
    return None if isinstance(item, pb.StepReport) else ok(item)


def recorded(gateway: ScriptedGateway, token: str) -> list[str]:
    return [report.message.step_name for report in gateway.log.reports(token)]


# ---- when a value counts ----


async def test_a_step_value_is_not_seen_before_the_gateway_has_it_and_is_not_sent_again_while_it_waits(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    seen: list[int] = []

    @workflow(name="sees")
    async def sees(ctx: Context) -> None:
        seen.append(await ctx.step.run("one", lambda: 1))

    await connect(scripted, sees)
    scripted.script.item = withholding_reports
    token = scripted.assign("sees")
    report = await scripted.log.report(token, "one")
    for _ in range(4):
        await scripted.log.beat()
    assert seen == []
    assert len(scripted.log.reports(token)) == 1

    scripted.answer(ok(report))
    await scripted.log.result(token)
    assert seen == [1]


async def test_a_step_report_says_what_the_step_did(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="two-steps")
    async def two_steps(ctx: Context) -> None:
        await ctx.step.run("first", asyncio.sleep, 0.05, {"a": [1, None]})
        await ctx.step.run("second", lambda: "x")

    await connect(scripted, two_steps)
    token = scripted.assign("two-steps")
    result = await scripted.log.result(token)
    first, second = (heard.message for heard in scripted.log.reports(token))
    assert (first.step_name, first.step_seq, first.steps_recorded) == ("first", 1, 0)
    assert (second.step_name, second.step_seq, second.steps_recorded) == ("second", 2, 1)
    assert result.steps_recorded == 2
    assert first.step_kind == run_pb2.STEP_KIND_FUNCTION and first.status == run_pb2.STEP_STATUS_SUCCEEDED
    assert first.output.data == b'{"a":[1,null]}' and first.output.content_type == "application/json"
    assert 50 <= first.elapsed.ToMilliseconds() < 1000
    assert len({first.request_id, second.request_id, result.request_id} - {0}) == 3


@pytest.mark.parametrize("form", ["gather", "TaskGroup"])
async def test_parallel_steps_are_in_flight_together(
    form: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="parallel")
    async def parallel(ctx: Context) -> list[int]:
        if form == "gather":
            return await asyncio.gather(*(ctx.step.run(f"s{n}", lambda n=n: n) for n in range(3)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.step.run(f"s{n}", lambda n=n: n)) for n in range(3)]
        return [task.result() for task in tasks]

    await connect(scripted, parallel)
    scripted.script.item = withholding_reports
    token = scripted.assign("parallel")
    await eventually(lambda: sorted(recorded(scripted, token)) == ["s0", "s1", "s2"])
    for report in reversed(scripted.log.reports(token)):
        scripted.answer(ok(report.message))
    result = await scripted.log.result(token)
    assert value_of(result.output) == [0, 1, 2]
    assert result.steps_recorded == 3


async def test_a_step_does_not_wait_for_the_answers_of_its_siblings(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="two-lanes")
    async def two_lanes(ctx: Context) -> None:
        async def lane(name: str) -> None:
            await ctx.step.run(f"{name}1", lambda: None)
            await ctx.step.run(f"{name}2", lambda: None)

        await asyncio.gather(lane("slow"), lane("fast"))

    await connect(scripted, two_lanes)
    scripted.script.item = lambda item: (
        None if isinstance(item, pb.StepReport) and item.step_name == "slow1" else ok(item)
    )
    token = scripted.assign("two-lanes")
    await scripted.log.report(token, "fast2")
    assert "slow2" not in recorded(scripted, token)
    scripted.answer(ok(await scripted.log.report(token, "slow1")))
    await scripted.log.result(token)


# ---- what is on record ----


async def test_steps_on_record_are_not_executed_and_the_rest_is(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed = Counter[str]()

    def note(name: str) -> str:
        executed[name] += 1
        return f"new {name}"

    @workflow(name="three")
    async def three(ctx: Context) -> list[str]:
        return [await ctx.step.run(name, note, name) for name in ("a", "b", "c")]

    await connect(scripted, three)
    token = scripted.assign("three", steps=[succeeded("a", "old a", seq=1), succeeded("b", "old b", seq=2)])
    result = await scripted.log.result(token)
    assert value_of(result.output) == ["old a", "old b", "new c"]
    assert executed == {"c": 1}
    [report] = scripted.log.reports(token)
    assert (report.message.step_name, report.message.step_seq, report.message.steps_recorded) == ("c", 3, 2)
    assert result.steps_recorded == 3


async def test_a_run_whose_steps_are_all_on_record_executes_none(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[bool] = []

    @workflow(name="recorded")
    def recorded_before(ctx: BlockingContext) -> int:
        return ctx.step.run("a", lambda: executed.append(True) or 0) + 1

    await connect(scripted, recorded_before)
    token = scripted.assign("recorded", steps=[succeeded("a", 41)])
    assert value_of((await scripted.log.result(token)).output) == 42
    assert executed == [] and scripted.log.reports(token) == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("ValueError", ValueError),
        ("CardDeclined", StepFailedError),
        ("KeyError", KeyError),
        ("UnicodeDecodeError", StepFailedError),
        ("StopIteration", StepFailedError),
        ("SystemExit", StepFailedError),
    ],
)
async def test_a_failure_that_the_handler_saw_in_this_attempt_is_raised_again_and_not_executed(
    kind: str, expected: type[Exception], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[bool] = []
    raised: list[Exception] = []

    @workflow(name="tolerant")
    async def tolerant(ctx: Context) -> str:
        try:
            await ctx.step.run("charge", lambda: executed.append(True))
        except Exception as error:
            raised.append(error)
            return "declined"
        return "charged"

    await connect(scripted, tolerant)
    token = scripted.assign("tolerant", attempt=2, steps=[failed("charge", kind, "no money", attempt=2)])
    assert value_of((await scripted.log.result(token)).output) == "declined"
    [error] = raised
    assert isinstance(error, expected) and "no money" in str(error)
    assert executed == [] and scripted.log.reports(token) == []


@pytest.mark.parametrize(
    "on_record",
    [
        failed("charge", "ValueError", "no money", attempt=1),
        failed("charge", "ValueError", "no money", attempt=2, is_final=False),
    ],
    ids=["of an earlier attempt", "that the handler never saw"],
)
async def test_a_failed_step_is_executed_again(
    on_record: pb.StepSnapshot, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="charges")
    async def charges(ctx: Context) -> str:
        return await ctx.step.run("charge", lambda: "charged")

    await connect(scripted, charges)
    token = scripted.assign("charges", attempt=2, max_attempts=3, steps=[on_record])
    assert value_of((await scripted.log.result(token)).output) == "charged"
    assert recorded(scripted, token) == ["charge"]


async def test_a_failed_step_is_recorded_with_type_message_and_causes_and_the_handler_may_go_on(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    def declines() -> None:
        try:
            raise LookupError("no such card")
        except LookupError as error:
            raise ValueError("the card is declined") from error

    @workflow(name="goes-on")
    async def goes_on(ctx: Context) -> str:
        try:
            await ctx.step.run("charge", declines)
        except ValueError:
            return await ctx.step.run("apologize", lambda: "sorry")
        return "charged"

    await connect(scripted, goes_on)
    token = scripted.assign("goes-on")
    assert value_of((await scripted.log.result(token)).output) == "sorry"
    report = await scripted.log.report(token, "charge")
    assert report.status == run_pb2.STEP_STATUS_FAILED and report.final
    failure = report.failure
    assert (failure.type, failure.message, kind_of(failure)) == ("ValueError", "the card is declined", "error")
    assert "declines" in failure.traceback and failure.language == "python"
    assert (failure.cause.type, failure.cause.message) == ("LookupError", "no such card")


# ---- names ----


async def test_the_second_use_of_a_step_name_fails_the_run_for_good(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[int] = []

    @workflow(name="repeats")
    async def repeats(ctx: Context) -> None:
        for n in range(2):
            await ctx.step.run("same", executed.append, n)

    @workflow(name="repeats-in-a-thread")
    def repeats_in_a_thread(ctx: BlockingContext) -> None:
        for n in range(2):
            ctx.step.run("same", executed.append, n)

    @workflow(name="repeats-at-once")
    async def repeats_at_once(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step.run("same", executed.append, n) for n in range(2)))

    await connect(scripted, repeats, repeats_in_a_thread, repeats_at_once)
    for name in ("repeats", "repeats-in-a-thread", "repeats-at-once"):
        executed.clear()
        failure = (await scripted.log.result(scripted.assign(name, max_attempts=5))).failure
        assert failure.type == "DuplicateStepError" and "'same'" in failure.message, name
        assert forbids_retry(failure), name
        # At once, the run may have failed before its first use has begun.
        assert 1 not in executed, name


@pytest.mark.parametrize("name", ["", "x" * 257, "é" * 129, "line\nbreak", "nul\0", "lone \ud800"])
async def test_a_step_name_that_the_gateway_would_refuse_is_refused_before_the_step_runs(
    name: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[bool] = []

    @workflow(name="names-a-step")
    async def names_a_step(ctx: Context) -> None:
        await ctx.step.run(name, lambda: executed.append(True))

    await connect(scripted, names_a_step)
    token = scripted.assign("names-a-step")
    failure = (await scripted.log.result(token)).failure
    assert "step name" in failure.message
    assert executed == [] and scripted.log.reports(token) == []


async def test_a_step_name_of_256_bytes_is_taken(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="long-name")
    async def long_name(ctx: Context) -> str:
        return await ctx.step.run("é" * 128, lambda: "taken")

    await connect(scripted, long_name)
    token = scripted.assign("long-name")
    assert value_of((await scripted.log.result(token)).output) == "taken"


# ---- outputs that do not come along ----


async def test_an_output_by_reference_is_fetched_when_it_is_needed(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    large = "x" * 100_000

    def give(request: pb.GetStepOutputsRequest) -> pb.GetStepOutputsResponse:
        if len(scripted.log.fetches) == 1:
            raise RuntimeError("the first call is lost")
        return pb.GetStepOutputsResponse(steps=[succeeded("needed", large)])

    @workflow(name="fetches")
    async def fetches(ctx: Context) -> int:
        return len(await ctx.step.run("needed", lambda: "executed"))

    scripted.script.outputs = give
    await connect(scripted, fetches)
    steps = [by_reference("needed", len(large)), by_reference("not-needed", 70_000, seq=2)]
    token = scripted.assign("fetches", steps=steps)
    result = await scripted.log.result(token)
    assert value_of(result.output) == len(large)
    asked = [(it.message.lease_token, list(it.message.step_names)) for it in scripted.log.fetches]
    assert asked == [(token, ["needed"])] * 2
    assert scripted.log.reports(token) == [] and result.steps_recorded == 2


async def test_steps_that_did_not_fit_into_the_assignment_are_on_record_all_the_same(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    pages = {"": ([succeeded("s0", 0)], "1"), "1": ([succeeded("s1", 10, seq=2), succeeded("s2", 20, seq=3)], "")}

    def give(request: pb.GetStepOutputsRequest) -> pb.GetStepOutputsResponse:
        steps, next_page = pages[request.page_token]
        wanted = [step for step in steps if not request.step_names or step.step_name in request.step_names]
        return pb.GetStepOutputsResponse(steps=wanted, next_page_token=next_page)

    executed: list[int] = []

    @workflow(name="many")
    async def many(ctx: Context) -> list[int]:
        return [await ctx.step.run(f"s{n}", lambda n=n: executed.append(n) or n) for n in range(4)]

    scripted.script.outputs = give
    await connect(scripted, many)
    token = scripted.assign("many", payload(None), steps=[succeeded("s0", 0)], steps_truncated=True)
    result = await scripted.log.result(token)
    assert value_of(result.output) == [0, 10, 20, 3]
    assert executed == [3]
    assert result.steps_recorded == 4
