"""Runs whose handlers are parked: workflows that wait, and a gateway that has them wait in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from redflow_sdk import BlockingContext, Context, Workflow, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.eventually import eventually
from tests.sdk.messages import ok, parked, resolution, resolved, suspended, value_of, wait_over
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


def waiting(noted: list[str]) -> Iterator[Workflow[Any, Any]]:
    """Workflows that wait for one run and note how they begin and end, of both kinds: waits-async, waits-def."""

    @workflow(name="waits-async")
    async def waits(ctx: Context) -> Any:
        noted.append("begun")
        try:
            value = await ctx.step.run_workflow("child", "other")
        except BaseException as error:
            noted.append(type(error).__name__)
            raise
        noted.append("went on")
        return await ctx.step.run("after", lambda: value)

    @workflow(name="waits-def")
    def waits_blocking(ctx: BlockingContext) -> Any:
        noted.append("begun")
        try:
            value = ctx.step.run_workflow("child", "other")
        except BaseException as error:
            noted.append(type(error).__name__)
            raise
        noted.append("went on")
        return ctx.step.run("after", lambda: value)

    yield from (waits, waits_blocking)


def parking(item: Item) -> pb.ItemResult:
    """Parks whoever asks for it, sets the others aside, and has a slot for those that ask to go on."""
    if not isinstance(item, pb.Suspension):
        return ok(item)
    if not item.waits:
        return resolved(item)
    return parked(item) if item.park else suspended(item)


def without_slot(item: Item) -> pb.ItemResult | None:
    """Has none for those that ask to go on."""
    return None if isinstance(item, pb.Suspension) and not item.waits else parking(item)


def withholding_suspensions(item: Item) -> pb.ItemResult | None:
    return None if isinstance(item, pb.Suspension) else ok(item)


def parking_and(at_the_end: Callable[[pb.Suspension], pb.ItemResult | None]) -> Callable[[Item], pb.ItemResult | None]:
    """Parks whoever asks for it; the others get this."""

    def answers(item: Item) -> pb.ItemResult | None:
        return at_the_end(item) if isinstance(item, pb.Suspension) and not item.park else parking(item)

    return answers


async def parked_run(gateway: ScriptedGateway, name: str, **fields: Any) -> str:  # Any: fields of the message
    """A run whose handler is parked; its token."""
    token = gateway.assign(name, **fields)
    await eventually(lambda: gateway.log.held().get(token) == "PARKED", saying=f"{token} is parked")
    return token


def resolve(gateway: ScriptedGateway, token: str, value: Any = 7, name: str = "child") -> None:  # Any: a JSON document
    """The run that a handler waits for has ended."""
    gateway.send(wait_resolutions=[resolution(token, wait_over("child", name, value))])


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    return bool(value_of((await gateway.log.result(gateway.assign("quick"))).output) == "quick")


async def rounds(gateway: ScriptedGateway, count: int = 3) -> None:
    """Time for something to be said that must not be."""
    for _ in range(count):
        await gateway.log.beat()
