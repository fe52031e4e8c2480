"""How a snapshot asks Redis: many commands in one round trip, a script once for each of many things."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import cache
from typing import Final, TypeVar

from redis.asyncio import Redis

from redflow_server.store.codec import Reply
from redflow_server.store.scripts import FOLDER
from redflow_server.store.snapshot_scripts import HEAD

T = TypeVar("T")
Command = tuple[bytes | str | int, ...]

PAGE: Final = 200
"""Commands in one round trip."""


class SnapshotCalls:
    """Calls with a client that answers bytes, for what stands under a prefix."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    async def each(
        self, body: str, calls: Iterable[tuple[bytes, ...]]
    ) -> AsyncIterator[tuple[tuple[bytes, ...], Reply]]:
        """Runs a script once for each tuple of arguments."""
        script, sha = _script(body)
        for page in pages(list(calls)):
            commands: list[Command] = [("EVALSHA", sha, 1, self._prefix, *arguments) for arguments in page]
            replies = await self.ask([("SCRIPT LOAD", script), *commands])
            for arguments, reply in zip(page, replies[1:], strict=True):
                yield arguments, reply

    async def ask(self, commands: Iterable[Command]) -> list[Reply]:
        """Sends the commands together. Raises as redis-py does."""
        # No transaction: a full Redis refuses every command in one.
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return list(await pipeline.execute())


@cache
def _script(body: str) -> tuple[str, str]:
    """What Redis runs, and the name it gives it."""
    names = "".join((FOLDER / "lib" / f"{file}.lua").read_text() for file in ("keys", "lane_name"))
    script = names + HEAD + body
    return script, hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items, as many at a time as go together."""
    return (items[i : i + PAGE] for i in range(0, len(items), PAGE))
