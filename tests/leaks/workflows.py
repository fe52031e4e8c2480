"""What the worker runs."""

from __future__ import annotations

import asyncio

from redflow_sdk import Context, workflow

LONGER_THAN_ALL_S = 24 * 3600.0
RESULT = "x" * 1000


@workflow(name="leak-noop", queue="leaks")
async def noop(ctx: Context, number: int) -> str:
    """Returns a thousand bytes; each hundredth fails."""
    if number % 100 == 99:
        raise ValueError("each hundredth fails")
    return RESULT


@workflow(name="leak-stay", queue="leaks")
async def stay(ctx: Context) -> None:
    """Stays in hand until it is canceled."""
    await asyncio.sleep(LONGER_THAN_ALL_S)


@workflow(name="leak-beside", queue="leaks")
async def beside(ctx: Context) -> str:
    """What somebody else has to do meanwhile, in a lane of its own."""
    return RESULT


app = [noop, stay, beside]
