"""Codecs, workflows whose values hold a marker, and a search for it in all that is stored."""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass

from redflow_sdk import Context, workflow
from redflow_server.store.keys import Keys
from tests.redis_command import RedisCommand

MARKER = "4111-1111-1111"


class Scrambled:
    """No cipher, but like one: other bytes each time, and none of what was given."""

    def __init__(self, name: str = "scrambled", key: int = 0x5A) -> None:
        self.name, self._key = name, key

    def encode(self, data: bytes) -> bytes:
        return secrets.token_bytes(8) + bytes(byte ^ self._key for byte in b"ok" + data)

    def decode(self, data: bytes) -> bytes:
        plain = bytes(byte ^ self._key for byte in data[8:])
        if not plain.startswith(b"ok"):
            raise ValueError(f"wrong key for {plain!r}")
        return plain[2:]


class Zipped:
    name = "zlib"

    def encode(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)


@dataclass
class Card:
    number: str


CARD = Card(MARKER)
CARD_JSON = {"number": MARKER}


async def charge(card: Card) -> Card:
    return card


def declines(number: str) -> None:
    raise LookupError(f"no card {number}")


@workflow(name="child")
async def child(ctx: Context, card: Card) -> Card:
    return await ctx.step.run("charge", charge, card)


async def everything_stored(redis: RedisCommand, keys: Keys) -> str:
    """All keys of the test and what they hold, as text."""
    texts = []
    for key in await redis("KEYS", f"{keys.prefix}*"):
        kind = await redis("TYPE", key)
        reading = {
            "string": ("GET", key),
            "hash": ("HGETALL", key),
            "list": ("LRANGE", key, 0, -1),
            "set": ("SMEMBERS", key),
            "zset": ("ZRANGE", key, 0, -1),
            "stream": ("XRANGE", key, "-", "+"),
        }
        texts.append(f"{key} {await redis(*reading[kind])!r}")
    return "\n".join(texts)
