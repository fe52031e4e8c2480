"""Plain Redis commands with text in and out."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

Reply = Any  # whatever the command answers


class RedisCommand:
    """`await redis("HGET", key, field)`."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def __call__(self, *command: str | int | float) -> Reply:
        return _text(await self._client.execute_command(*command))


def _text(reply: Reply) -> Reply:
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "replace")
    if isinstance(reply, (list, tuple)):
        return [_text(item) for item in reply]
    if isinstance(reply, (set, frozenset)):
        return {_text(item) for item in reply}
    if isinstance(reply, dict):
        return {_text(key): _text(value) for key, value in reply.items()}
    return reply
