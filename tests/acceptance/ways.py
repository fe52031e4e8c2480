"""The ways on which a value leaves a run, or a client."""

from __future__ import annotations

import datetime as dt
from typing import Final

from redflow_sdk import Client, Context, workflow

FROM_A_RUN: Final = {
    "output": "the output",
    "step": "the value of step 'sends'",
    "child": "the input of workflow 'takes'",
    "started run": "the input of workflow 'takes'",
    "event": "the payload of event 'brought'",
    "later event": "the payload of event 'brought'",
}
FROM_A_CLIENT: Final = {
    "start": "the input of workflow 'takes'",
    "execute": "the input of workflow 'takes'",
    "event": "the payload of event 'brought'",
    "later event": "the payload of event 'brought'",
    "token": "the output",
}
"""How the value is called when it is refused."""


@workflow(name="takes", events=["brought"])
async def takes(ctx: Context, input: object) -> str:
    """Where values go."""
    return "taken"


def soon() -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=50)


async def sent_by_a_run(ctx: Context, way: str, value: object) -> object:
    """Sends the value on its way; all but an output in a step that is called `sends`."""
    match way:
        case "output":
            return value
        case "step":
            await ctx.step.run("sends", lambda: value)
        case "child":
            await ctx.step.run_workflow("sends", takes, value)
        case "started run":
            await ctx.step.start_workflow("sends", takes, value)
        case "event":
            await ctx.step.emit_event("sends", "brought", value)
        case "later event":
            await ctx.step.schedule_event("sends", "brought", value, available_at=soon())
        case _:
            raise LookupError(way)
    return "sent"


async def sent_by_a_client(client: Client, way: str, value: object, *, token: str = "none") -> None:
    """Sends the value on its way; as an output of the token, on the last one."""
    match way:
        case "start":
            await client.start(takes, value)
        case "execute":
            await client.execute(takes, value, timeout=20)
        case "event":
            await client.emit_event("brought", value)
        case "later event":
            await client.schedule_event("brought", value, available_at=soon())
        case "token":
            await client.complete_token(token, value)
        case _:
            raise LookupError(way)
