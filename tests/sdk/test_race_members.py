"""What may be in a race: each member one step, which begins only when the others are there."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from redflow_sdk import Context, DuplicateStepError, InvalidInputError, NonRetriableError, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import (
    answer,
    cancellation,
    emitted,
    forbids_retry,
    kind_of,
    ok,
    open_wait,
    resolved,
    value_of,
    wait_over,
    withdrawn,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

executed: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    executed.clear()


def races(members: Any) -> Any:
    """A workflow that has these race, for one run; what is raised is its output."""

    @workflow(name="races")
    async def handler(ctx: Context) -> list[str]:
        try:
            first = await ctx.step.race("r", **members(ctx))
        except (InvalidInputError, NonRetriableError, LookupError) as error:
            return [type(error).__name__, str(error)]
        return [first.winner]

    return handler


async def raised(gateway: ScriptedGateway, connect: StartWorker, members: Any) -> list[str]:
    await connect(gateway, races(members))
    token = gateway.assign("races")
    output: list[str] = value_of((await gateway.log.result(token)).output)
    assert gateway.log.suspensions(token) == []
    return output


def noting(name: str) -> Any:
    async def note() -> None:
        executed.append(name)

    return note


# ---- refused before anything begins ----

INVALID: dict[str, tuple[Any, str]] = {
    "none": (lambda ctx: {}, "2 to 100 members; got 0"),
    "one": (lambda ctx: {"a": ctx.step.run("a", noting("a"))}, "2 to 100 members; got 1"),
    "too many": (
        lambda ctx: {f"m{n}": ctx.step.run(f"m{n}", noting("m")) for n in range(101)},
        "2 to 100 members; got 101",
    ),
    "a function": (lambda ctx: {"a": ctx.step.run("a", noting("a")), "b": noting("b")}, "member 'b' must be a step"),
    "a value": (lambda ctx: {"a": ctx.step.run("a", noting("a")), "b": 5}, "member 'b' must be a step"),
}


@pytest.mark.parametrize("case", INVALID)
async def test_what_is_no_race_is_refused_and_its_members_are_closed_without_a_warning(
    case: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    members, word = INVALID[case]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        kind, message = await raised(scripted, connect, members)
        gc.collect()
    assert kind == "InvalidInputError" and word in message
    assert executed == []
    assert [str(it.message) for it in warned if "never awaited" in str(it.message)] == []


async def test_a_member_without_a_name_is_refused_with_the_form_that_has_one(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="unnamed")
    async def unnamed(ctx: Context) -> None:
        unnamed: Any = ctx.step.run("a", noting("a"))
        await ctx.step.race("r", unnamed, late=ctx.step.sleep("late", 1))

    await connect(scripted, unnamed)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        failure = (await scripted.log.result(scripted.assign("unnamed"))).failure
        gc.collect()
    assert failure.type == "InvalidInputError"
    assert failure.message == (
        "race 'r' takes each member by a name, which becomes its `winner`, such as late=ctx.step.sleep(...); "
        "got 1 without one"
    )
    assert executed == []
    assert [str(it.message) for it in warned if "never awaited" in str(it.message)] == []


async def test_a_race_needs_a_name(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="nameless")
    async def nameless(ctx: Context) -> None:
        await ctx.step.race("", a=ctx.step.sleep("a", 1), b=ctx.step.sleep("b", 1))

    await connect(scripted, nameless)
    failure = (await scripted.log.result(scripted.assign("nameless", max_attempts=5))).failure
    assert failure.type == "InvalidInputError" and "race name" in failure.message and forbids_retry(failure)


# ---- refused when it is seen what a member is ----


async def test_a_member_of_two_steps_fails_at_the_second(scripted: ScriptedGateway, connect: StartWorker) -> None:
    async def two(ctx: Context) -> None:
        await ctx.step.run("a", noting("a"))
        await ctx.step.run("b", noting("b"))

    kind, message = await raised(
        scripted, connect, lambda ctx: {"two": two(ctx), "other": ctx.step.run("c", asyncio.sleep, 60)}
    )
    assert kind == "NonRetriableError" and "'two' goes on from step 'a' to 'b'" in message
    assert executed == ["a"]


async def test_steps_side_by_side_in_a_member_are_two(scripted: ScriptedGateway, connect: StartWorker) -> None:
    async def two(ctx: Context) -> None:
        await asyncio.gather(ctx.step.run("a", noting("a")), ctx.step.run("b", noting("b")))

    kind, message = await raised(
        scripted, connect, lambda ctx: {"two": two(ctx), "other": ctx.step.run("c", asyncio.sleep, 60)}
    )
    assert kind == "NonRetriableError" and "'two'" in message


async def test_a_coroutine_around_one_step_is_a_member(scripted: ScriptedGateway, connect: StartWorker) -> None:
    async def around(ctx: Context) -> str:
        await asyncio.sleep(0.01)
        await ctx.step.run("a", noting("a"))
        return "around"

    output = await raised(
        scripted, connect, lambda ctx: {"around": around(ctx), "other": ctx.step.run("c", asyncio.sleep, 60)}
    )
    assert output == ["around"] and executed == ["a"]


async def test_a_coroutine_that_makes_a_token_and_waits_for_it_is_a_member(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    async def approval(ctx: Context) -> str:
        token = await ctx.step.token("approve")
        return f"{token} {await token.result()}"

    def answers(item: Item) -> pb.ItemResult:
        if isinstance(item, pb.StepCommand):
            return resolved(item, open_wait("token", "approve", token="tok"))
        over = wait_over("token", "approve", "yes", token="tok")
        return resolved(item, over, withdrawn("timer", "late")) if isinstance(item, pb.Suspension) else ok(item)

    await connect(scripted, races(lambda ctx: {"approval": approval(ctx), "late": ctx.step.sleep("late", hours=1)}))
    scripted.script.item = answers
    token = scripted.assign("races")
    assert value_of((await scripted.log.result(token)).output) == ["approval"]
    [asked] = scripted.log.suspensions(token)
    assert [(wait.step_name, wait.group) for wait in asked.message.waits] == [("approve", "r"), ("late", "r")]


async def test_what_is_called_within_the_function_of_a_member_is_no_member(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    async def announces(ctx: Context) -> list[str]:
        await ctx.step.run("inner", noting("inner"))
        return await ctx.step.emit_event("it", "e")

    await connect(
        scripted,
        races(
            lambda ctx: {
                "announces": ctx.step.run("a", announces, ctx),
                "other": ctx.step.run("c", asyncio.sleep, 60),
            }
        ),
    )
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_OK, resolutions=[emitted("it", "run-8")])
        if isinstance(item, pb.StepCommand)
        else ok(item)
    )
    token = scripted.assign("races")
    assert value_of((await scripted.log.result(token)).output) == ["announces"]
    assert executed == ["inner"] and list((await scripted.log.report(token, "inner")).rivals) == []


async def test_a_member_without_a_step_is_none_and_nothing_else_has_begun(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    async def raw() -> str:
        await asyncio.sleep(0.05)
        return "raw"

    kind, message = await raised(scripted, connect, lambda ctx: {"step": ctx.step.run("a", noting("a")), "raw": raw()})
    assert kind == "NonRetriableError" and "'raw' is none" in message
    assert executed == []


async def test_a_member_that_raises_before_its_step_ends_the_race_with_that(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    async def raises() -> None:
        raise LookupError("no such order")

    output = await raised(scripted, connect, lambda ctx: {"step": ctx.step.run("a", noting("a")), "raises": raises()})
    assert output == ["LookupError", "no such order"] and executed == []


async def test_members_of_one_name_are_a_duplicate_before_either_begins(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    kind, _ = await raised(scripted, connect, lambda ctx: {n: ctx.step.run("same", noting("same")) for n in ("a", "b")})
    assert kind == DuplicateStepError.__name__ and executed == []


EFFECTS: dict[str, Any] = {
    "emit_event": lambda ctx: ctx.step.emit_event("it", "e"),
    "start_workflow": lambda ctx: ctx.step.start_workflow("it", "other"),
    "race": lambda ctx: ctx.step.race("it", a=ctx.step.sleep("b", 1), b=ctx.step.sleep("c", 1)),
}


@pytest.mark.parametrize("effect", EFFECTS)
async def test_what_is_over_at_once_cannot_be_in_a_race_and_has_no_effect(
    effect: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    _, message = await raised(
        scripted, connect, lambda ctx: {"it": EFFECTS[effect](ctx), "step": ctx.step.run("a", noting("a"))}
    )
    assert "race" in message and "'it'" in message
    assert executed == [] and scripted.log.commands() == []


# ---- and how it ends otherwise ----


async def test_a_cancel_ends_all_members(scripted: ScriptedGateway, connect: StartWorker) -> None:
    ended: list[str] = []

    async def works(name: str) -> None:
        executed.append(name)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)

    members = lambda ctx: {  # noqa: E731  # one expression
        **{name: ctx.step.run(name, works, name) for name in ("a", "b")},
        "c": ctx.step.sleep("c", hours=1),
    }
    await connect(scripted, races(members))
    token = scripted.assign("races")
    await eventually(lambda: sorted(executed) == ["a", "b"])
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.result(token)).canceled.reason == pb.CANCELED_REASON_REQUESTED
    assert sorted(ended) == ["a", "b"]


async def test_a_race_is_not_set_aside_before_its_last_member_has_come_to_its_step(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    async def later(ctx: Context) -> None:
        for _ in range(50):
            await asyncio.sleep(0.001)
        await ctx.step.sleep("b", 1)

    await connect(scripted, races(lambda ctx: {"a": ctx.step.sleep("a", 1), "later": later(ctx)}))
    scripted.script.item = lambda item: (
        resolved(item, wait_over("timer", "b")) if isinstance(item, pb.Suspension) else ok(item)
    )
    token = scripted.assign("races")
    assert value_of((await scripted.log.result(token)).output) == ["later"]
    assert [[wait.step_name for wait in it.message.waits] for it in scripted.log.suspensions(token)] == [["a", "b"]]


async def test_runs_in_a_race_with_more_input_than_a_message_holds_are_refused(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """They have to begin together."""

    @workflow(name="heavy")
    async def heavy(ctx: Context) -> None:
        runs = {f"c{n}": ctx.step.run_workflow(f"c{n}", "child", str(n) * 900_000) for n in range(3)}
        await ctx.step.race("r", **runs)

    await connect(scripted, heavy)
    token = scripted.assign("heavy", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "serialization" and "2 MiB together" in failure.message
    assert scripted.log.said(token) == ["RunResult"]


@pytest.mark.parametrize(("before", "racing"), [(50, 100), (99, 2), (160, 60)])
async def test_a_race_goes_into_one_message_whatever_waits_beside_it(
    before: int, racing: int, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="large")
    async def large(ctx: Context) -> None:
        members = {f"m{n}": ctx.step.sleep(f"m{n}", hours=1) for n in range(racing)}
        sleeps = [ctx.step.sleep(f"s{n}", hours=1) for n in range(before)]
        await asyncio.gather(*sleeps, ctx.step.race("r", **members), ctx.step.run("slow", asyncio.sleep, 60))

    await connect(scripted, large)
    token = scripted.assign("large")
    await eventually(lambda: len(scripted.log.begun(token)) == before + racing)
    sizes = [len(it.message.wait.waits) for it in scripted.log.commands(token)]
    races_in = [sum(wait.group == "r" for wait in it.message.wait.waits) for it in scripted.log.commands(token)]
    assert max(sizes) <= 100 and sorted(races_in)[-2:] == [0, racing]
