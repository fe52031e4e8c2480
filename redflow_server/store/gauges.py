"""Numbers of waits and events that an operator looks at, read from outside of any gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from redflow_server.store.codec import Reply, number
from redflow_server.store.keys import Keys
from redflow_server.store.wire import unavailable

OVERDUE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Gauges:
    """`overdue_waits` should have ended more than a minute ago, the first of them at `overdue_since_ms`. Of events,
    `deliveries` are on their way to waits, `remembered` can still be got by waits, and `dropped` were forgotten early.
    """

    overdue_waits: int = 0
    overdue_since_ms: int | None = None
    deliveries: int = 0
    remembered: int = 0
    dropped: int = 0


async def read_gauges(client: Redis, keys: Keys) -> Gauges:
    """All of them. Keys that are not what they should be are the invariants' business: then everything is 0.

    Raises StoreUnavailable.
    """
    first: Reply
    dropped: Reply
    try:
        seconds, _ = await client.time()
        before_ms = 1000 * seconds - OVERDUE_MS
        first = await client.zrangebyscore(keys.timers, "-inf", before_ms, start=0, num=1, withscores=True)
        dropped = await client.get(keys.events_dropped)
        return Gauges(
            overdue_waits=await client.zcount(keys.timers, "-inf", before_ms),
            overdue_since_ms=int(first[0][1]) if first else None,
            deliveries=await client.zcard(keys.deliveries),
            remembered=await client.zcard(keys.event_memory),
            dropped=number(dropped) or 0,
        )
    except (ResponseError, ValueError):
        return Gauges()
    except (RedisError, OSError) as error:
        raise unavailable(error) from error
