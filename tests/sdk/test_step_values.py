"""A handler sees one value of a step, whether it is new or on record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redflow_sdk import Context, InputValidationError, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.sdk.scripted_gateway import ScriptedGateway


@dataclass(frozen=True)
class Receipt:
    order: int
    lines: tuple[str, ...]


async def test_the_value_of_a_step_is_the_same_when_it_is_new_and_when_it_is_on_record(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    seen: list[tuple[Any, Any]] = []

    def make_receipt() -> Receipt:
        return Receipt(7, ("a", "b"))

    def make_untyped():  # type: ignore[no-untyped-def]  # noqa: ANN202  # a function without annotations is the case
        return (1, {"pair": (2, 3)})

    @workflow(name="values")
    async def values(ctx: Context) -> None:
        seen.append((await ctx.step.run("typed", make_receipt), await ctx.step.run("untyped", make_untyped)))

    await connect(scripted, values)
    token = scripted.assign("values")
    await scripted.log.result(token)
    on_record = [
        pb.StepSnapshot(
            step_name=it.message.step_name, step_seq=it.message.step_seq, status=it.message.status, attempt=1,
            step_kind=it.message.step_kind, output=it.message.output,
        )
        for it in scripted.log.reports(token)
    ]  # fmt: skip
    again = scripted.assign("values", steps=on_record)
    await scripted.log.result(again)
    assert seen == [(Receipt(7, ("a", "b")), [1, {"pair": [2, 3]}])] * 2


async def test_a_value_is_read_by_its_annotation_also_when_it_is_new(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    seen: list[Any] = []

    def whole() -> float:
        return 3

    def misnamed() -> int:
        return "5"  # type: ignore[return-value]  # that is the case

    @workflow(name="values")
    async def values(ctx: Context) -> None:
        seen.append(await ctx.step.run("whole", whole))
        try:
            await ctx.step.run("misnamed", misnamed)
        except InputValidationError as error:
            seen.append(str(error))

    await connect(scripted, values)
    await scripted.log.result(scripted.assign("values"))
    assert [type(value) for value in seen] == [float, str]
    assert "must be an int; got" in seen[1]
