"""Runs that fail for good: a workflow with a failure handler, and a gateway that has it called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redflow_sdk import Context, Workflow, workflow
from redflow_sdk.proto.v1 import failure_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.eventually import eventually
from tests.sdk.messages import answer, ok, value_of
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

HANDLER = pb.ASSIGNMENT_KIND_FAILURE_HANDLER
RECORDED = failure_pb2.Failure(
    type="CardDeclined", message="no money", failure_kind=failure_pb2.FAILURE_KIND_ERROR, language="typescript"
)


@dataclass(frozen=True)
class Order:
    id: int


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


def failing_for_good(item: Item) -> pb.ItemResult:
    """Every failure is the last one."""
    if isinstance(item, pb.RunResult) and item.HasField("failure") and not item.failure_handler_done:
        return answer(item, pb.ITEM_STATUS_RUN_FAILURE_HANDLER)
    return ok(item)


async def handled(gateway: ScriptedGateway, token: str, *, within: float = 5) -> pb.RunResult:
    """What the worker says when the failure handler has ended."""

    def results() -> list[pb.RunResult]:
        return [it.message for it in gateway.log.results(token) if it.message.failure_handler_done]

    return (await eventually(results, within=within, every=0.01))[0]


def failing(on_failure: Any, *, error: BaseException | None = None) -> Workflow[Order, None]:
    @workflow(name="fails", on_failure=on_failure)
    async def fails(ctx: Context, order: Order) -> None:
        raise error or ValueError("no money")

    return fails


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    return bool(value_of((await gateway.log.result(gateway.assign("quick"))).output) == "quick")
