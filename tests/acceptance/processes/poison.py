"""Workflows of a worker that one of them kills, as `redflow worker run` finds them.

What handlers do leaves lines in the file REDFLOW_TEST_JOURNAL; long ones wait for a file beside it, and end
later than their worker when the one that kills it is beside them.
"""

from __future__ import annotations

import asyncio
import os
import signal

from redflow_sdk import Context, workflow
from tests.acceptance.processes.deployed import RELEASE, note, written

LONG_S = 0.12


@workflow(name="poison", queue="poison")
async def poison(ctx: Context) -> None:
    note("poison")
    await asyncio.sleep(LONG_S / 2)  # those that were delivered with it are at work by then
    os.kill(os.getpid(), signal.SIGKILL)


@workflow(name="long", queue="poison")
async def long(ctx: Context, number: int) -> int:
    note("long")
    await written(RELEASE)
    await asyncio.sleep(LONG_S)
    return number
