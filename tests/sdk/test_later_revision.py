"""A worker at a gateway of a later release: what it does not know is ignored, and what it is refused for is told."""

from __future__ import annotations

import asyncio

import pytest

from redflow_sdk import Context, SessionRefusedError, Worker, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.sdk.messages import cancellation, forbids_retry, kind_of, ok, payload, succeeded, value_of, verdict
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

UNKNOWN_FIELD = b"\xf2\x3f\x03new"
"""Field 1022 of a later revision."""
UNKNOWN_VALUE = 99
"""Of any enum."""


@workflow(name="double")
async def double(ctx: Context, number: int) -> int:
    return 2 * number


@workflow(name="steps")
async def steps(ctx: Context) -> list[str]:
    return [await ctx.step.run("first", lambda: "called"), await ctx.step.run("second", lambda: "called")]


@workflow(name="waits")
async def waits(ctx: Context) -> None:
    await asyncio.Event().wait()


async def doubles(gateway: ScriptedGateway) -> bool:
    result = await gateway.log.result(gateway.assign("double", payload(21)))
    return bool(value_of(result.output) == 42)


def newer(response: pb.SessionResponse) -> pb.SessionResponse:
    response.MergeFromString(UNKNOWN_FIELD)
    return response


async def test_fields_values_and_messages_that_it_does_not_know_are_ignored(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    def open_newer(opening: pb.OpenSession) -> pb.SessionResponse:
        opened = scripted.opened(opening)
        opened.capabilities.append(UNKNOWN_VALUE)  # type: ignore[arg-type]  # that is the case
        opened.MergeFromString(UNKNOWN_FIELD)
        return newer(pb.SessionResponse(opened=opened))

    scripted.script.open = open_newer
    await connect(scripted, double, steps)
    assert await doubles(scripted)
    scripted.session.send(newer(pb.SessionResponse()))
    assignment = scripted.assignment("steps", steps=[succeeded("first", "recorded")])
    for message in (assignment, assignment.steps[0]):
        message.MergeFromString(UNKNOWN_FIELD)
    scripted.session.send(newer(pb.SessionResponse(assignments=[assignment])))
    result = await scripted.log.result(assignment.lease_token)
    assert value_of(result.output) == ["recorded", "called"]
    assert await doubles(scripted)
    assert len(scripted.sessions) == 1


async def test_a_cancel_for_a_reason_that_it_does_not_know_is_a_cancel(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, waits, double)
    token = scripted.assign("waits")
    await scripted.log.ack(token)
    scripted.send(cancellations=[cancellation(token, UNKNOWN_VALUE)])  # type: ignore[arg-type]  # that is the case
    assert (await scripted.log.result(token)).WhichOneof("outcome") == "canceled"
    assert await doubles(scripted)


async def test_an_answer_that_it_does_not_know_fails_the_run_and_not_the_worker(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    def answer(item: Item) -> pb.ItemResult:
        result = ok(item)
        if isinstance(item, pb.StepReport):
            result.status = UNKNOWN_VALUE  # type: ignore[assignment]  # that is the case
            result.message = "the answer of a later revision"
        return result

    await connect(scripted, steps, double)
    scripted.script.item = answer
    result = await scripted.log.result(scripted.assign("steps", max_attempts=5))
    assert "the answer of a later revision" in result.failure.message
    assert kind_of(result.failure) == "non_retriable" and forbids_retry(result.failure)
    assert await doubles(scripted)
    assert len(scripted.sessions) == 1


async def test_a_verdict_on_a_lease_that_it_does_not_know_leaves_the_run_at_work(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    released = asyncio.Event()

    @workflow(name="held")
    async def held(ctx: Context) -> str:
        await released.wait()
        return "done"

    def open_newer(opening: pb.OpenSession) -> pb.SessionResponse:
        unknown = [verdict(lease.lease_token, UNKNOWN_VALUE) for lease in opening.held_leases]  # type: ignore[arg-type]  # that is the case
        return pb.SessionResponse(opened=scripted.opened(opening, unknown))

    await connect(scripted, held, double)
    token = scripted.assign("held")
    await scripted.log.ack(token)
    scripted.script.open = open_newer
    scripted.session.cut()
    await scripted.log.open(2)
    released.set()
    assert value_of((await scripted.log.result(token)).output) == "done"
    assert await doubles(scripted)


async def test_a_gateway_that_speaks_later_revisions_only_is_left_with_what_it_speaks(
    scripted: ScriptedGateway,
) -> None:
    def refuse(opening: pb.OpenSession) -> pb.SessionResponse:
        spoken = f"{opening.min_revision} to {opening.max_revision}"
        message = f"the gateway speaks revision 2, the worker {spoken}"
        return pb.SessionResponse(error=pb.SessionError(reason="REVISION_UNSUPPORTED", message=message, permanent=True))

    scripted.script.open = refuse
    with pytest.raises(SessionRefusedError, match="the gateway speaks revision 2, the worker 1 to 1"):
        await asyncio.wait_for(Worker(scripted.target, workflows=[double]).run(), 3)
    assert len(scripted.log.opens()) == 1
