"""A worker whose handler calls into C code that does not let go of the GIL. `python -m ... TARGET LOG`.

Its log has a line for each call, `holds` when it begins and `held` when it is over.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import sys

from redflow_sdk import Context, Worker, workflow
from tests.acceptance.processes.worker_crash import count

WORKFLOW = "hold"
QUEUE = "hold"
HELD_US = 5_000_000


async def main(target: str, log: str) -> None:
    """Works until it is killed."""
    logging.basicConfig(format="%(levelname)s %(message)s")
    # CDLL would let go of the GIL around each call.
    libc = ctypes.PyDLL(None)

    @workflow(name=WORKFLOW, queue=QUEUE)
    async def hold(ctx: Context, holds: bool) -> str:
        if holds:
            count(log, "holds")
            libc.usleep(HELD_US)
            count(log, "held")
        return "by the holder"

    async with Worker(target, workflows=[hold], concurrency=1):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
