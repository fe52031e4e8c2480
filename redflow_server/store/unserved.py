"""Lanes whose runs nobody would take, read from outside of any gateway."""

from __future__ import annotations

from collections import Counter
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from redflow_server.domain.runs import LaneDepth
from redflow_server.domain.workers import Worker
from redflow_server.store.codec import Reply, text
from redflow_server.store.codec_registry import decode_worker
from redflow_server.store.keys import Keys, lane_of
from redflow_server.store.wire import unavailable

PAGE: Final = 500


async def unserved_lanes(client: Redis, keys: Keys) -> tuple[LaneDepth, ...]:
    """The lanes with runs that no connected worker serves, by queue and workflow, with how many runs wait in them.

    The client answers bytes. Keys that are not what they should be are the invariants' business: they count as empty.
    Raises StoreUnavailable.
    """
    try:
        workers = await _workers(client, keys)
        served = {(queue, workflow) for one in workers for queue in one.queues for workflow in one.workflows}
        names = {text(name) async for name, _ in client.zscan_iter(keys.lanes, count=PAGE)}
        waiting: Counter[tuple[str, str]] = Counter()
        for name in names:
            lane = lane_of(name)
            if (lane.queue, lane.workflow) not in served:
                waiting[lane.queue, lane.workflow] += await client.zcard(keys.lane(name))
    except (ResponseError, ValueError):
        return ()
    except (RedisError, OSError) as error:
        raise unavailable(error) from error
    return tuple(LaneDepth(*where, depth) for where, depth in sorted(waiting.items()) if depth)


async def _workers(client: Redis, keys: Keys) -> list[Worker]:
    """The workers connected to any gateway, as these describe them."""
    ids: Reply
    descriptions: Reply
    seconds, _ = await client.time()
    ids = await client.zrangebyscore(keys.sessions, 1000 * seconds, "+inf")
    workers = []
    for at in range(0, len(ids), PAGE):
        descriptions = await client.mget([keys.session(text(session_id)) for session_id in ids[at : at + PAGE]])
        workers += [decode_worker(description) for description in descriptions if description is not None]
    return workers
