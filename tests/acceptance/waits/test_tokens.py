"""Runs that wait for people and webhooks, by tokens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from redflow_sdk import Client, Context, NotWaitingError, TokenFailedError, workflow
from redflow_sdk.workflow import Workflow
from tests.acceptance.waits.seen import has_begun_to_wait
from tests.conftest import StartWorker
from tests.eventually import eventually


@dataclass
class Decision:
    is_granted: bool
    by: str


class Mailbox(asyncio.Queue[str]):
    """Where handlers send their tokens."""

    async def receive(self) -> str:
        """The next one; fails when none comes."""
        return await asyncio.wait_for(self.get(), 10)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def approval(mailbox: Mailbox) -> Workflow[float, str]:
    @workflow(name="approval")
    async def approval(ctx: Context, timeout: float) -> str:
        token = await ctx.step.token("approve", Decision, timeout=timeout)
        await ctx.step.run("ask", mailbox.put, token)
        try:
            decision = await token.result()
        except TokenFailedError as error:
            return f"failed: {error.failure.message}"
        except TimeoutError:
            return "nobody has decided"
        return f"{decision.by}: {decision.is_granted}"

    return approval


async def test_a_token_that_is_completed_ends_the_wait_with_its_value(
    client: Client, start_worker: StartWorker, mailbox: Mailbox, approval: Workflow[float, str]
) -> None:
    await start_worker(approval)
    handle = await client.start(approval, 20.0)
    token = await mailbox.receive()
    await eventually(lambda: has_begun_to_wait(client, handle.id, "approve"))

    await client.complete_token(token, Decision(is_granted=True, by="Ada"))

    assert await handle.result(timeout=10) == "Ada: True"
    assert mailbox.empty(), "the step that sends it has run once"


async def test_a_token_is_completed_once_and_a_repeat_with_the_same_value_changes_nothing(
    client: Client, start_worker: StartWorker, mailbox: Mailbox, approval: Workflow[float, str]
) -> None:
    await start_worker(approval)
    handle = await client.start(approval, 20.0)
    token = await mailbox.receive()

    await client.complete_token(token, Decision(is_granted=False, by="Ada"))
    await client.complete_token(token, Decision(is_granted=False, by="Ada"))
    with pytest.raises(NotWaitingError):
        await client.complete_token(token, Decision(is_granted=True, by="Bob"))
    with pytest.raises(NotWaitingError):
        await client.fail_token(token, "too late")

    assert await handle.result(timeout=10) == "Ada: False"


async def test_a_token_that_is_failed_raises_how(
    client: Client, start_worker: StartWorker, mailbox: Mailbox, approval: Workflow[float, str]
) -> None:
    await start_worker(approval)
    handle = await client.start(approval, 20.0)

    await client.fail_token(await mailbox.receive(), "the budget is spent")

    assert await handle.result(timeout=10) == "failed: the budget is spent"


async def test_a_token_that_nobody_completes_in_time_raises_a_timeout_and_is_of_no_use_then(
    client: Client, start_worker: StartWorker, mailbox: Mailbox, approval: Workflow[float, str]
) -> None:
    await start_worker(approval)
    handle = await client.start(approval, 0.2)

    assert await handle.result(timeout=10) == "nobody has decided"
    with pytest.raises(NotWaitingError):
        await client.complete_token(await mailbox.receive(), Decision(is_granted=True, by="Ada"))


async def test_a_token_that_is_completed_before_its_result_is_awaited_keeps_the_value(
    client: Client, start_worker: StartWorker
) -> None:
    async def complete(token: str) -> None:
        await client.complete_token(token, ["kept"])

    @workflow
    async def sends_and_sleeps(ctx: Context) -> list[str]:
        token = await ctx.step.token("token", list[str], timeout=20)
        await ctx.step.run("send", complete, token)
        await ctx.step.sleep("nap", 0.1)
        return await token.result()

    await start_worker(sends_and_sleeps)

    assert await client.execute(sends_and_sleeps, timeout=10) == ["kept"]


async def test_several_tokens_are_completed_in_any_order(
    client: Client, start_worker: StartWorker, mailbox: Mailbox
) -> None:
    @workflow
    async def polls(ctx: Context, voters: int) -> list[int]:
        tokens = [await ctx.step.token(f"vote {number}", int, timeout=20) for number in range(voters)]
        for number, token in enumerate(tokens):
            await ctx.step.run(f"send {number}", mailbox.put, token)
        return list(await asyncio.gather(*(token.result() for token in tokens)))

    await start_worker(polls)
    handle = await client.start(polls, 5)
    tokens = [await mailbox.receive() for _ in range(5)]

    for number in (3, 0, 4, 2, 1):
        await client.complete_token(tokens[number], number * number)

    assert await handle.result(timeout=10) == [0, 1, 4, 9, 16]
    assert len(set(tokens)) == 5
    assert mailbox.empty()
