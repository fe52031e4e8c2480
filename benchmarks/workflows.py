"""What the worker of a benchmark runs. It counts in a file that both processes have mapped: no call to anybody."""

from __future__ import annotations

import mmap
import os
import struct

from redflow_sdk import Context, workflow

_file = open(os.environ["REDFLOW_BENCH_COUNTER"], "r+b")  # noqa: SIM115  # open for the life of the process
_counter = mmap.mmap(_file.fileno(), 8)
_done = 0


def _count() -> None:
    global _done
    _done += 1
    _counter[:8] = struct.pack("q", _done)


@workflow(name="noop")
async def noop(ctx: Context, number: int) -> int:
    """Does nothing."""
    _count()
    return number


@workflow(name="ten-steps")
async def ten_steps(ctx: Context, number: int) -> int:
    """Ten steps, one after the other."""
    for step in range(10):
        number = await ctx.step.run(f"s{step}", _next, number)
    _count()
    return number


async def _next(number: int) -> int:
    return number + 1


app = [noop, ten_steps]
