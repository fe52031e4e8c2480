"""What the workers run beside every load: a schedule, and runs that hand back what they are given."""

from __future__ import annotations

import os
from typing import Final

from redflow_sdk import Context, Cron, JsonValue, workflow
from tests.chaos.journal import Line, append
from tests.chaos.workflows import JOURNAL, in_hand

BESIDE: Final = "beside"
"""Their queue: what is in it was not started by the load."""
PULSE: Final = "pulse"
ECHOED: Final = "chaos.echoed"
MARKER: Final = "4111-1111-1111-1111"
"""A secret in payloads, which no process may tell."""
AWKWARD: Final[JsonValue] = {
    "integers": [2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**40],
    "floats": [0.1 + 0.2, -0.0, 1.0, 1e-300],
    "nothing": [None, [], {}, "", False, 0, [[]], {"a": []}],
    "text": ["\u0000", "\u2028", "\u00e9", "e\u0301", "\U0001f600", '"\\'],
    "card": MARKER,
}
"""What other systems change on the way."""


@workflow(name=PULSE, queue=BESIDE, cron=[Cron("* * * * * *", id="second")])
async def pulse(ctx: Context) -> None:
    """Once a second."""
    append(JOURNAL, Line("pulse", ctx.run.id, os.getpid()))


@workflow(name="echo", queue=BESIDE)
async def echo(ctx: Context, value: JsonValue) -> JsonValue:
    """Gives back what it gets, by way of a step."""
    with in_hand(ctx.run.id):
        return await ctx.step.run("same", lambda: value)


@workflow(name="echo-by-others", queue=BESIDE)
async def echo_by_others(ctx: Context, value: JsonValue) -> JsonValue:
    """Gives back what it gets, by way of another run and of an event."""
    with in_hand(ctx.run.id):
        echoed = await ctx.step.run_workflow("child", echo, value)
        await ctx.step.emit_event("emit", ECHOED, echoed, key=ctx.run.id)
        event = await ctx.step.wait_for_event("event", ECHOED, key=ctx.run.id)
        assert event is not None
        return event.payload


app = [pulse, echo, echo_by_others]
