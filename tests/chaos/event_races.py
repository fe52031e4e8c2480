"""Events that are emitted just when a run begins to wait for them. Each has to be got once, in order, whoever is first.

A run says when it will begin to wait, and events are emitted from a little before to a little after that. How they have
met is read from what the store has written down: when the wait began there, and when the event was emitted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from redflow_sdk import Client, Context, RedflowError, workflow

EVENT: Final = "chaos.raced"
AROUND_S: Final = 0.05
"""How far before or after the beginning of the first wait events are emitted."""
LEAD_S: Final = 0.2
"""From the start of a run to the beginning of its first wait."""
WAITS: Final = 3
PATIENCE_S: Final = 60.0
MAX_VIOLATIONS: Final = 100


@dataclass(frozen=True)
class Race:
    """What a run listens to, and from when, in seconds of the machine's clock."""

    key: str
    begins_at: float


@dataclass(frozen=True)
class Heard:
    """The numbers of the events that its waits got, and when each was emitted."""

    numbers: list[int | None]
    emitted_at: list[datetime | None]


async def until(at: float) -> None:
    """Returns at a time."""
    await asyncio.sleep(at - time.time())


@workflow(name="listen", queue="chaos")
async def listen(ctx: Context, race: Race) -> Heard:
    """Waits for all events of its race, and for one that does not come."""
    await ctx.step.run("aim", until, race.begins_at)
    heard = Heard([], [])
    for number in range(WAITS + 1):
        timeout = PATIENCE_S if number < WAITS else AROUND_S
        event = await ctx.step.wait_for_event(f"wait {number}", EVENT, key=race.key, payload_type=int, timeout=timeout)
        heard.numbers.append(None if event is None else event.payload)
        heard.emitted_at.append(None if event is None else event.time)
    return heard


app = [listen]


@dataclass
class Account:
    """How the races went. A meeting is the emission of a race's first event less the beginning of its first wait."""

    violations: list[str] = field(default_factory=list)
    meetings_s: list[float] = field(default_factory=list)
    close: int = 0
    """How many first events were emitted within the time around the beginning of the wait."""

    def met(self, meeting_s: float) -> None:
        """A race has gone as it should."""
        self.meetings_s.append(meeting_s)
        self.close += abs(meeting_s) <= AROUND_S

    @property
    def before(self) -> int:
        """How many were emitted before the wait."""
        return sum(meeting < 0 for meeting in self.meetings_s)


class Races:
    """Races, so many of them at once, drawn from a seed. Somebody has to serve `listen`."""

    def __init__(self, client: Client, seed: int, at_once: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._at_once = at_once
        self._lag_s = 0.0
        """How much later than they say waits begin; learnt, so that as many events come before as after."""
        self.account = Account()

    async def run(self, close: int, at_most: int) -> Account:
        """Holds races until so many were close, on a machine that is busy with something else only so many in all."""
        numbers = iter(range(at_most))
        async with asyncio.TaskGroup() as group:
            for _ in range(self._at_once):
                group.create_task(self._hold(numbers, close))
        return self.account

    async def _hold(self, numbers: Iterator[int], close: int) -> None:
        for number in numbers:
            if self.account.close >= close or len(self.account.violations) >= MAX_VIOLATIONS:
                return
            offsets = sorted(self._random.uniform(-AROUND_S, AROUND_S) for _ in range(WAITS))
            try:
                await self._race(Race(f"race {number}", time.time() + LEAD_S), offsets)
            except RedflowError as error:
                self.account.violations.append(f"race {number}: {error!r}")

    async def _race(self, race: Race, offsets: list[float]) -> None:
        handle = await self._client.start(listen, race)
        for number, offset in enumerate(offsets):
            await until(race.begins_at + self._lag_s + offset)
            await self._client.emit_event(EVENT, number, key=race.key)
        heard = await handle.result(timeout=2 * PATIENCE_S)
        if heard.numbers != [*range(WAITS), None]:
            self.account.violations.append(f"{race.key} {handle.id} got {heard.numbers}")
            return
        steps = {step.name: step for step in await self._client.get_run_steps(handle.id)}
        began_at, emitted_at = steps["wait 0"].started_at, heard.emitted_at[0]
        assert began_at is not None
        assert emitted_at is not None
        self._lag_s += (began_at.timestamp() - race.begins_at - self._lag_s) / 20
        self.account.met((emitted_at - began_at).total_seconds())
