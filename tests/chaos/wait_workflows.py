"""What the workers of the wait rounds run: a workflow that uses every wait, and the ones that it starts.

Every side effect is a line in the journal, and so is the end of every wait, each time that a handler sees it.
"""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from redflow_sdk import ChildCanceledError, ChildFailedError, Context, RetryPolicy, TokenFailedError, workflow
from tests.chaos.journal import Line, append
from tests.chaos.workflows import JOURNAL, in_hand, run_step

T = TypeVar("T")

TOLD: Final = "chaos.told"
"""What somebody outside emits twice for each run, with its key."""
SAID: Final = "chaos.said"
"""What a run emits for itself."""
NEVER: Final = "chaos.never"
LONG_S: Final = 300.0
"""Longer than any outage: what has such a time-out is expected to end before."""
FOR_GOOD_S: Final = 3600.0
APPROVED: Final = 7
REFUSED: Final = "refused"
TRIES: Final = 3
PATIENT: Final = RetryPolicy(max_attempts=50, initial=0.02, multiplier=60.0, maximum=1.2, jitter=0.0)
"""A pause in the handler, and then one for which the run is set aside."""


def saw(ctx: Context, step: str, end: T) -> T:
    """Notes how waits have ended, and gives it."""
    append(JOURNAL, Line("saw", ctx.run.id, os.getpid(), step, zlib.crc32(json.dumps(end).encode())))
    return end


def ask(run_id: str, text: str) -> None:
    """Asks somebody outside."""
    append(JOURNAL, Line("asks", run_id, os.getpid(), text))


# ---- what runs wait for, beside time, people and events ----


@workflow(name="quick", queue="chaos")
async def quick(ctx: Context, start: int) -> int:
    """Sleeps between two steps."""
    with in_hand(ctx.run.id):
        value = await run_step(ctx, "s0", start)
        await ctx.step.sleep("nap", 0.1)
        return await run_step(ctx, "s1", value)


@workflow(name="fails", queue="chaos")
async def fails(ctx: Context, start: int) -> int:
    """Fails after a wait."""
    with in_hand(ctx.run.id):
        await ctx.step.sleep("nap", 0.05)
        raise LookupError(f"nothing there: {start}")


@workflow(name="stays", queue="chaos")
async def stays(ctx: Context, start: int) -> int:
    """Waits until it is canceled."""
    with in_hand(ctx.run.id):
        await ctx.step.wait_for_event("never", NEVER)
        return start


@workflow(name="gives-up", queue="chaos")
async def gives_up(ctx: Context, start: int) -> int:
    """Asks to be canceled, and waits for it."""
    with in_hand(ctx.run.id):
        await ctx.step.run("ask", ask, ctx.run.id, f"cancel:{ctx.run.id}")
        await ctx.step.wait_for_event("never", NEVER)
        return start


# ---- the one that waits ----


@dataclass(frozen=True)
class Order:
    """What one run of it is given. Somebody outside emits the events of the key."""

    number: int
    key: str

    @property
    def events(self) -> tuple[str, str]:
        """What is emitted, in this order."""
        return f"first of {self.key}", f"second of {self.key}"

    @property
    def outcome(self) -> list[object]:
        """What the run returns."""
        number, (first, second) = self.number, self.events
        return [
            [first, second, "said", None, APPROVED, REFUSED, 11],
            [number + 2, f"nothing there: {number}", "canceled", "nobody"],
            ["late", "event", "child", number + 2, "function", number + 1],
            [2, 2, 2, "at last"],
        ]


@workflow(name="everything", queue="chaos")
async def everything(ctx: Context, order: Order) -> list[object]:
    """Uses every wait, one after the other and beside one another."""
    with in_hand(ctx.run.id):
        number = await run_step(ctx, "s0", order.number - 1)
        await ctx.step.sleep("nap", 0.1)
        people, children = await asyncio.gather(_people(ctx, order.key), _children(ctx, number))
        return [people, children, await _races(ctx, number), await _times(ctx)]


async def _people(ctx: Context, key: str) -> list[object]:
    """Events and tokens."""
    first = await _event(ctx, "first", TOLD, key)
    token = await ctx.step.token("approve", int, timeout=LONG_S)
    refused = await ctx.step.token("refuse", int, timeout=LONG_S)
    await ctx.step.run("ask", ask, ctx.run.id, f"complete:{token}")
    await ctx.step.run("ask-again", ask, ctx.run.id, f"fail:{refused}")
    approved, second, own, _, beside = await asyncio.gather(
        token.result(),
        _event(ctx, "second", TOLD, key),
        _event(ctx, "own", SAID, ctx.run.id),
        ctx.step.emit_event("say", SAID, "said", key=ctx.run.id),
        run_step(ctx, "beside", 10),
    )
    nothing = await _event(ctx, "nothing", TOLD, key, timeout=0.1)
    try:
        await refused.result()
        said = "not refused"
    except TokenFailedError as error:
        said = error.failure.message
    return saw(ctx, "people", [first, second, own, nothing, approved, said, beside])


async def _event(ctx: Context, step: str, event: str, key: str, timeout: float = LONG_S) -> object:
    got = await ctx.step.wait_for_event(step, event, key=key, timeout=timeout)
    return saw(ctx, step, None if got is None else got.payload)


async def _children(ctx: Context, start: int) -> list[object]:
    """Each way in which a run that is waited for can end, and two that are not waited for."""
    ends: list[object] = [await ctx.step.run_workflow("quick", quick, start)]
    await ctx.step.start_workflow("abandoned", quick, start)
    await ctx.step.start_workflow("companion", stays, start, parent_close="cancel")
    for name, child in (("fails", fails), ("gives-up", gives_up)):
        try:
            ends.append(await ctx.step.run_workflow(name, child, start))
        except ChildFailedError as error:
            ends.append(error.failure.cause and error.failure.cause.message)
        except ChildCanceledError:
            ends.append("canceled")
    try:
        ends.append(await ctx.step.run_workflow("nobody", "nobody-serves", start, queue="nowhere", timeout=0.2))
    except TimeoutError:
        ends.append("nobody")
    return saw(ctx, "children", ends)


async def _races(ctx: Context, start: int) -> list[object]:
    """Races that a time, an event, a child, and a function win."""
    late = await ctx.step.race(
        "late-wins",
        late=ctx.step.sleep("late", 0.1),
        event=ctx.step.wait_for_event("no-event", NEVER),
        child=ctx.step.run_workflow("slow-child", stays, start),
        function=ctx.step.run("slow-function", asyncio.sleep, FOR_GOOD_S),
    )
    event, _ = await asyncio.gather(
        ctx.step.race(
            "event-wins",
            event=ctx.step.wait_for_event("an-event", SAID, key=f"{ctx.run.id}:race"),
            late=ctx.step.sleep("not-so-late", FOR_GOOD_S),
        ),
        ctx.step.emit_event("say-it", SAID, "raced", key=f"{ctx.run.id}:race"),
    )
    child = await ctx.step.race(
        "child-wins",
        child=ctx.step.run_workflow("quick-child", quick, start),
        late=ctx.step.sleep("never-so-late", FOR_GOOD_S),
    )
    function = await ctx.step.race(
        "function-wins",
        function=run_step(ctx, "quick-function", start),
        event=ctx.step.wait_for_event("no-event-either", NEVER),
    )
    winners: list[object] = [late.winner, event.winner, child.winner, child.value, function.winner, function.value]
    return saw(ctx, "races", winners)


async def _times(ctx: Context) -> list[object]:
    """Times, beside steps, and pauses between the tries of a step."""

    async def branch(name: str) -> int:
        value = await run_step(ctx, f"{name}-before", 0)
        await ctx.step.sleep(f"{name}-nap", 0.1)
        return await run_step(ctx, f"{name}-after", value)

    async with asyncio.TaskGroup() as group:
        branches = [group.create_task(branch(f"branch-{number}")) for number in range(3)]
    at = await ctx.step.run("when", _soon)
    await ctx.step.sleep_until("then", at)
    tried = await ctx.step.run("flaky", _flaky, ctx.run.id, retry=PATIENT)
    return saw(ctx, "times", [*(each.result() for each in branches), tried])


def _soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=0.2)


def _flaky(run_id: str) -> str:
    """Raises until it was called often enough, by whomever."""
    append(JOURNAL, Line("tried", run_id, os.getpid(), "flaky"))
    calls = Path(JOURNAL).read_text().count(f"tried {run_id} ")
    if calls < TRIES:
        raise ConnectionError(f"call {calls}")
    return "at last"


app = [everything, quick, fails, stays, gives_up]
