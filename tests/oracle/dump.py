"""Reads every key under a prefix in one round trip. Long values come as their length and digest."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Final

from redflow_server.store.wire import Wire, pack

LONG: Final = 4096

_SCRIPT: Final = """
local function short(value)
  if #value < tonumber(ARGV[1]) then return value end
  return '~' .. #value .. ':' .. redis.sha1hex(value)
end
local function all_short(list)
  for i, one in ipairs(list) do list[i] = short(one) end
  return list
end
local found = {}
for _, key in ipairs(redis.call('KEYS', KEYS[1] .. ':*')) do
  local kind, content = redis.call('TYPE', key).ok, nil
  if kind == 'string' then content = redis.call('GET', key) end
  if kind == 'hash' then content = all_short(redis.call('HGETALL', key)) end
  if kind == 'set' then content = redis.call('SMEMBERS', key) end
  if kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  if kind == 'stream' then
    content = redis.call('XRANGE', key, '-', '+')
    for _, entry in ipairs(content) do entry[2] = all_short(entry[2]) end
  end
  found[#found + 1] = {string.sub(key, #KEYS[1] + 2), kind, redis.call('PEXPIRETIME', key), content}
end
return found
"""

Reply = Any  # Any: what Redis answers is typed by the script that answered


@dataclass
class Dump:
    """Keys behind the prefix by what they hold; `expires_at` has those that Redis removes by itself."""

    strings: dict[bytes, bytes] = field(default_factory=dict)
    hashes: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    sets: dict[bytes, set[bytes]] = field(default_factory=dict)
    zsets: dict[bytes, dict[bytes, float]] = field(default_factory=dict)
    streams: dict[bytes, list[tuple[bytes, dict[bytes, bytes]]]] = field(default_factory=dict)
    expires_at: dict[bytes, float] = field(default_factory=dict)


async def read_dump(wire: Wire, prefix: str) -> Dump:
    """All that stands under the prefix, at one instant."""
    [reply] = await wire.ask([pack("EVAL", _SCRIPT, 1, prefix, LONG)], 1)
    if isinstance(reply, Exception):
        raise reply
    dump = Dump()
    for key, kind, expires_at, content in reply:
        if expires_at >= 0:
            dump.expires_at[key] = expires_at
        _add(dump, key, kind, content)
    return dump


def _add(dump: Dump, key: bytes, kind: bytes, content: Reply) -> None:
    match kind:
        case b"string":
            dump.strings[key] = content
        case b"hash":
            dump.hashes[key] = _pairs(content)
        case b"set":
            dump.sets[key] = set(content)
        case b"zset":
            dump.zsets[key] = {member: float(score) for member, score in _pairs(content).items()}
        case b"stream":
            dump.streams[key] = [(entry_id, _pairs(flat)) for entry_id, flat in content]


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def shortened(value: bytes) -> bytes:
    """A value as it comes out of a dump."""
    if len(value) < LONG:
        return value
    return f"~{len(value)}:{sha1(value, usedforsecurity=False).hexdigest()}".encode()


def size_of(value: bytes) -> int:
    """The length of the value that was stored."""
    is_long = value.startswith(b"~") and len(value) > 40 and b":" in value
    return int(value[1 : value.index(b":")]) if is_long else len(value)
