"""The timer: runs a pass again and again, keeps its faults to itself, and can be woken."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from redflow_server.telemetry import Telemetry

MAX_BACKOFF_S: Final = 5.0
STUCK_S: Final = 20.0
"""No pass takes so long: what it asks of the store is answered or refused sooner."""


class Loop:
    """One duty. `tick` is a bounded pass and says whether more is to be done at once."""

    def __init__(
        self,
        name: str,
        tick: Callable[[], Awaitable[bool]],
        interval_s: float,
        telemetry: Telemetry,
        jitter: float = 0.1,
    ) -> None:
        self.name = name
        self._tick = tick
        self._interval_s = interval_s
        self._telemetry = telemetry
        self._jitter = jitter
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._began_at: float | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether its pass does not come to an end."""
        return self._began_at is not None and time.monotonic() - self._began_at > STUCK_S

    @property
    def is_alive(self) -> bool:
        """Whether it runs. A loop that has died makes its gateway unfit to serve."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Starts the loop; once is enough."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=f"loop-{self.name}")
            self._task.add_done_callback(partial(self._telemetry.watch, f"loop {self.name}"))

    async def stop(self) -> None:
        """Stops the loop, also one that was never started."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def wake(self) -> None:
        """Lets the next pass begin now."""
        self._woken.set()

    async def _work(self) -> None:
        while True:
            self._woken.clear()
            has_more = await self._pass()
            if not has_more:
                await self._rest()

    async def _pass(self) -> bool:
        self._began_at = time.monotonic()
        try:
            has_more = await self._tick()
        except Exception as error:  # a duty goes on whatever a pass meets; it is logged, counted and backs off
            self._failures += 1
            self._telemetry.fault(f"loop {self.name}", error)
            return False
        finally:
            self._began_at = None
        self._failures = 0
        return has_more

    async def _rest(self) -> None:
        pause_s = self._interval_s * (1 + self._jitter * random.random())
        if self._failures:
            backoff_s = min(MAX_BACKOFF_S, self._interval_s * 2 ** min(self._failures, 30))
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
            return
        try:
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        except TimeoutError:
            return
