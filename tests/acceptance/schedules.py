"""What the registry holds of cron schedules, and an account of the occurrences of one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from redflow_sdk import Client
from redflow_server.store.keys import Keys
from tests.eventually import eventually
from tests.redis_command import RedisCommand


async def now_ms(redis: RedisCommand) -> int:
    """Redis' clock, by which schedules go."""
    seconds, micros = await redis("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


async def schedule_ids(redis: RedisCommand, keys: Keys, workflow: str) -> list[str]:
    """The schedules of a workflow as they stand on record."""
    ids: list[str] = json.loads(await redis("HGET", keys.workflow(workflow), "cronIdsJson") or "[]")
    return ids


@dataclass(eq=False)
class EverySecond:
    """Accounts for a schedule of every second: each occurrence since its registration is a run, or is counted."""

    workflow: str
    client: Client
    redis: RedisCommand
    keys: Keys
    _since_ms: int = 0
    _until_ms: int = 0

    @asynccontextmanager
    async def registering(self) -> AsyncIterator[None]:
        """The schedule is registered meanwhile."""
        self._since_ms = await now_ms(self.redis)
        yield
        self._until_ms = await now_ms(self.redis)

    async def check(self) -> None:
        """As many occurrences have passed as there are runs and skipped ones."""
        [schedule_id] = await schedule_ids(self.redis, self.keys, self.workflow)

        async def settled() -> tuple[int, int] | None:
            """The next occurrence, and how many before it are accounted for; read while there is none."""
            next_ms = await self.redis("ZSCORE", self.keys.cron_next, schedule_id)
            skipped = int(await self.redis("HGET", self.keys.cron_skipped, schedule_id) or 0)
            runs = len([run async for run in self.client.list_runs(workflow=self.workflow)])
            is_same = next_ms == await self.redis("ZSCORE", self.keys.cron_next, schedule_id)
            return (int(next_ms), runs + skipped) if is_same else None

        next_ms, accounted = await eventually(settled)
        # The first one was planned at some time between these two.
        earliest, latest = (at // 1000 + 1 for at in (self._since_ms, self._until_ms))
        assert next_ms // 1000 - latest <= accounted <= next_ms // 1000 - earliest
