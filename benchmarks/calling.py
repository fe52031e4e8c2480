"""The client process of a measurement: `python -m benchmarks.calling MODULE KIND N AT_ONCE WARM_UP`.

Makes WARM_UP calls, says `ready`, waits for a line, makes N calls with AT_ONCE of them outstanding, prints what they
took, and ends when nobody has anything more to say to it. It runs in the environments of other engines too, so it needs
nothing but Python.

MODULE has `calls()`, an async context manager of calls by kind: `enqueue`, `roundtrip`, `steps`, `children` take a
number. `fill` takes a range and queues it in batches; without it, numbers are queued one by one, AT_ONCE outstanding.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, Final

Calls = Mapping[str, Callable[[Any], Awaitable[object]]]  # Any: a number, or a range of them
FILL: Final = "fill"
READY: Final = "ready"


async def _call_all(call: Callable[[int], Awaitable[object]], numbers: range, at_once: int) -> list[float]:
    """Makes all calls; how long each took, in milliseconds."""
    took_ms: list[float] = []
    left = iter(numbers)

    async def caller(left: Iterator[int]) -> None:
        for number in left:
            began = time.perf_counter()
            await call(number)
            took_ms.append(1000 * (time.perf_counter() - began))

    await asyncio.gather(*(caller(left) for _ in range(at_once)))
    return took_ms


async def _play(calls: Calls, kind: str, numbers: range, at_once: int) -> list[float]:
    if kind == FILL and FILL in calls:
        await calls[FILL](numbers)
        return []
    return await _call_all(calls["enqueue" if kind == FILL else kind], numbers, at_once)


async def _measure(module: str, kind: str, n: int, at_once: int, warm_up: int) -> None:
    connected: Callable[[], AbstractAsyncContextManager[Calls]] = import_module(module).calls
    async with connected() as calls:
        await _play(calls, kind, range(warm_up), at_once)
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        began, cpu_before_s = time.perf_counter(), time.process_time()
        took_ms = await _play(calls, kind, range(warm_up, warm_up + n), at_once)
        seconds = time.perf_counter() - began
        told = {"seconds": seconds, "cpu_s": time.process_time() - cpu_before_s, "took_ms": took_ms}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        # Until its memory has been read.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    """The command."""
    module, kind, *numbers = sys.argv[1:]
    n, at_once, warm_up = map(int, numbers)
    work = _measure(module, kind, n, at_once, warm_up)
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main()
