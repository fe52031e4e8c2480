"""What the worker of the benchmarks of waits runs. Times go from one handler to another: all are of one process."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import struct
import sys
import time
from datetime import datetime
from pathlib import Path
from types import FrameType

from benchmarks.counter import count
from redflow_sdk import Context, workflow
from redflow_sdk._execution import Execution

# ---- children ----

_asked_at: dict[str, float] = {}
_child_took_s: dict[str, float] = {}


@workflow(name="child")
async def child(ctx: Context, parent_id: str) -> None:
    """Does nothing."""
    began = time.perf_counter()
    _child_took_s[parent_id] = time.perf_counter() - began


@workflow(name="parent")
async def parent(ctx: Context, number: int) -> float:
    """Waits for a run; returns for how many seconds longer than that run's handler took."""
    # A handler that runs again has asked before.
    asked_at = _asked_at.setdefault(ctx.run.id, time.perf_counter())
    await ctx.step.run_workflow("child", child, ctx.run.id)
    waited_s = time.perf_counter() - asked_at
    return waited_s - _child_took_s[ctx.run.id]


# ---- sleepers, and those that are delayed ----

_lateness = open(os.environ["REDFLOW_BENCH_LATENESS"], "ab", buffering=0)  # noqa: SIM115  # for the life of the process


@workflow(name="sleeper")
async def sleeper(ctx: Context, due: datetime) -> None:
    """Sleeps until a time, and writes down how much later it goes on, in seconds."""
    await ctx.step.sleep_until("due", due)
    _be_late(due)


@workflow(name="delayed")
async def delayed(ctx: Context, due: datetime) -> None:
    """Is started at a time, and writes down how much later it began, in seconds."""
    _be_late(due)


def _be_late(due: datetime) -> None:
    _lateness.write(struct.pack("d", time.time() - due.timestamp()))
    count()


def _tell(number: int, frame: FrameType | None) -> None:
    """Writes down what this process has in memory for runs, and gives back to the system what it does not use."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    found = {
        "executions": sum(isinstance(each, Execution) for each in gc.get_objects()),
        "allocated_blocks": sys.getallocatedblocks(),
    }
    told = Path(os.environ["REDFLOW_BENCH_MEMORY"])
    new = told.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.rename(told)


signal.signal(signal.SIGUSR1, _tell)

app = [child, parent, sleeper, delayed]
