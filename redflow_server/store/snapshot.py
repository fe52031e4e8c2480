"""Everything under a prefix, read for a check of what must hold while others write.

SCAN finds which keys, runs, lanes, workflows and idempotency keys there are. Then each of them is read by one small
script, with every place that has it: what a snapshot says of one run is true of one instant, though no two runs in it
need be of the same one. So a run that moves meanwhile cannot look wrong. Of the values of steps only sizes are read.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.states import TERMINAL, RunStatus
from redflow_server.store.codec import Reply, text
from redflow_server.store.key_kinds import Kind, kind_of
from redflow_server.store.keys import Keys
from redflow_server.store.scripts import FOLDER

T = TypeVar("T")
Command = tuple[bytes | str | int, ...]

SCAN_COUNT: Final = 1000
PAGE: Final = 200
"""Commands in one round trip."""

PLACES: Final = ("scheduled", "leases", "deadlines", "lane", "status", "workflow_status", "finished")
"""The sorted sets that a run may be in, in the order in which the script answers."""


# ---- what is read ----


@dataclass(frozen=True, slots=True)
class KeyState:
    """A key: its kind is None when no rule knows it, its TTL -1 when it has none."""

    name: str
    kind: Kind | None
    type: str
    ttl_ms: int
    has_owner: bool = True
    """Whether that which it is kept for is there; only read for an owner's builds."""


@dataclass(frozen=True, slots=True)
class Stray:
    """An entry of a run in a sorted set where its record does not put it."""

    kind: str
    key: str
    score: float


@dataclass(frozen=True, slots=True)
class RunState:
    """A run, or what is left of one: an id that stands somewhere and has no record."""

    run_id: str
    record: Mapping[str, str]
    scores: Mapping[str, float]
    """Its scores in the sets of PLACES that its record puts it in."""
    strays: tuple[Stray, ...]
    headers: Mapping[str, str]
    sizes: Mapping[str, int]
    """Bytes of the values of steps."""
    other_step_fields: tuple[str, ...]
    pointer: str | None
    """The run that its idempotency key leads to."""
    has_data: bool
    has_steps: bool
    now_ms: int

    @property
    def status(self) -> RunStatus | None:
        """None when there is no record that scripts can read."""
        if not (self.record.get("workflow") and self.record.get("queue")):
            return None
        name = self.record.get("status")
        return RunStatus(name) if name in set(RunStatus) else None

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.status in TERMINAL

    def number(self, field_name: str) -> float | None:
        """A field as a number, in whatever notation; None when there is none."""
        return number(self.record.get(field_name))


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane's number among the non-empty ones, and how many runs it has."""

    key: str
    change: float | None
    depth: int


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """A registered workflow and the sets that have it or should."""

    name: str
    exists: bool
    is_registered: bool
    missing: tuple[str, ...]
    strays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PointerState:
    """An idempotency key, and what the record of the run that it leads to says."""

    key: str
    target: str
    target_exists: bool
    own_key: str | None
    """The name of the pointer that the run's record asks for."""


@dataclass(frozen=True, slots=True)
class StoredNumber:
    """What stands where an integer should, outside of the runs."""

    key: str
    what: str
    value: str | float


@dataclass(slots=True)
class Snapshot:
    """Everything under the prefix."""

    keys: Keys
    stored: list[KeyState] = field(default_factory=list)
    runs: list[RunState] = field(default_factory=list)
    lanes: list[LaneState] = field(default_factory=list)
    workflows: list[WorkflowState] = field(default_factory=list)
    pointers: list[PointerState] = field(default_factory=list)
    numbers: list[StoredNumber] = field(default_factory=list)


def number(raw: str | None) -> float | None:
    """A stored number, in whatever notation; None when it is none."""
    try:
        return float(raw) if raw else None
    except ValueError:
        return None


# ---- the scripts ----

_HEAD: Final = """
-- A key of another type answers nothing here: that it is of another type is told by a rule of its own.
local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return false end
  return reply
end
-- Of the keys that came as arguments after the first, those that have the member and are not among its own.
local function strays_of(command, own, answer)
  local is_own = {}
  for _, key in ipairs(own) do is_own[key] = true end
  for i = 2, #ARGV do
    local found = not is_own[ARGV[i]] and ask(command, ARGV[i], ARGV[1])
    if found and found ~= 0 then answer(ARGV[i], found) end
  end
end
"""

_READ_KEY: Final = """
local kept_for = ARGV[2]
return {redis.call('TYPE', ARGV[1]).ok, redis.call('PTTL', ARGV[1]), redis.call('EXISTS', kept_for)}
"""

_READ_RUN: Final = """
local id = ARGV[1]
local record, run, own, scores, strays, steps = ask('HGETALL', run_key(id)) or {}, {}, {}, {}, {}, {}
for i = 1, #record, 2 do run[record[i]] = record[i + 1] end
own = {SCHEDULED, LEASES, DEADLINES}
if run.status and run.workflow and run.queue then
  own[4] = lane_key(lp(run.queue) .. ':' .. lp(run.workflow))
  own[5], own[6] = status_key(run.status), workflow_status_key(run.status, run.workflow)
  own[7] = finished_key(run.status)
end
for i, key in ipairs(own) do scores[i] = ask('ZSCORE', key, id) end
strays_of('ZSCORE', own, function(key, score) strays[#strays + 1] = {key, score} end)
for _, field in ipairs(ask('HKEYS', steps_key(id)) or {}) do
  local is_header = string.sub(field, 1, 2) == 's:'
  steps[#steps + 1] = {field, redis.call(is_header and 'HGET' or 'HSTRLEN', steps_key(id), field)}
end
local names_key = run.workflow and run.idempotencyKey
local pointer = names_key and ask('GET', idempotency_key(run.workflow, run.idempotencyKey)) or false
local has_data, has_steps = redis.call('EXISTS', data_key(id)), redis.call('EXISTS', steps_key(id))
return {record, scores, strays, steps, pointer, has_data, has_steps, redis.call('TIME')}
"""

_READ_LANE: Final = """
return {lane_key(ARGV[1]), ask('ZSCORE', LANES, ARGV[1]), ask('ZCARD', lane_key(ARGV[1])) or 0}
"""

_READ_WORKFLOW: Final = """
local name = ARGV[1]
local exists = redis.call('EXISTS', workflow_key(name))
local fields = exists == 1 and ask('HMGET', workflow_key(name), 'owner', 'eventsJson') or {}
local own, missing, strays = {WORKFLOWS}, {}, {}
if fields[1] then own[2] = owner_workflows_key(fields[1]) end
local readable, events = pcall(cjson.decode, fields[2] or '[]')
for _, event in ipairs(readable and events or {}) do own[#own + 1] = event_workflows_key(event) end
for i = 2, #own do
  if ask('SISMEMBER', own[i], name) ~= 1 then missing[#missing + 1] = own[i] end
end
strays_of('SISMEMBER', own, function(key) strays[#strays + 1] = key end)
return {exists, ask('SISMEMBER', WORKFLOWS, name) or 0, missing, strays}
"""

_READ_POINTER: Final = """
local target = ask('GET', ARGV[1])
if not target then return false end
local named = ask('HMGET', run_key(target), 'workflow', 'idempotencyKey') or {}
local own = named[1] and named[2] and idempotency_key(named[1], named[2])
return {target, redis.call('EXISTS', run_key(target)), own or false}
"""


# ---- reading ----


async def read_snapshot(client: Redis, keys: Keys) -> Snapshot:
    """Reads everything under the prefix, in pages, with a client that answers bytes. O(everything).

    Raises StoreUnavailable.
    """
    reader = _Reader(client, keys)
    try:
        await reader.find()
        await reader.read_what_was_found()
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"Redis does not answer: {error}") from error
    return reader.snapshot


class _Reader:
    """One pass. What it found is kept as bytes: foreign hands may have written names that are no UTF-8."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self.snapshot = Snapshot(keys)
        self._client = client
        self._prefix = keys.prefix.encode() + b":"
        self._kinds: dict[bytes, Kind] = {}
        self._runs: defaultdict[bytes, set[bytes]] = defaultdict(set)
        self._workflows: defaultdict[bytes, set[bytes]] = defaultdict(set)
        self._lanes: set[bytes] = set()
        self._pointers: list[bytes] = []

    async def find(self) -> None:
        """Finds the keys, and in them the names of all that is to be read: for runs and workflows, with the sets."""
        pattern = re.sub(rb"([*?\[\]\\^-])", rb"\\\1", self._prefix) + b"*"
        names = {name async for name in self._client.scan_iter(match=pattern, count=SCAN_COUNT)}
        await self._read_keys(sorted(names))
        for key, kind in self._kinds.items():
            await self._look_into(key, kind)

    async def _read_keys(self, names: Sequence[bytes]) -> None:
        calls = [(name, re.sub(rb":builds\Z", b":workflows", name)) for name in names]
        async for (name, _), (type_, ttl_ms, has_owner) in self._each(_READ_KEY, calls):
            if type_ == b"none":
                continue
            kind = kind_of(name.removeprefix(self._prefix))
            self.snapshot.stored.append(KeyState(text(name), kind, text(type_), ttl_ms, bool(has_owner)))
            if kind is not None and kind.type == text(type_):
                self._kinds[name] = kind

    async def _look_into(self, key: bytes, kind: Kind) -> None:
        variable = kind.match(key.removeprefix(self._prefix)) or b""
        match kind.name:
            case "lane" | "scheduled" | "leases" | "deadlines" | "status" | "workflow_status" | "finished":
                async for run_id, _ in self._client.zscan_iter(key, count=SCAN_COUNT):
                    self._runs[run_id].add(key)
                if kind.name == "lane":
                    self._lanes.add(variable)
            case "run" | "data" | "steps":
                self._runs[variable]
            case "lanes" | "sessions":
                async for member, score in self._client.zscan_iter(key, count=SCAN_COUNT):
                    self._number(key, f"the score of {text(member)}", score)
                    if kind.name == "lanes":
                        self._lanes.add(member)
            case "workflows" | "event_workflows" | "owner_workflows":
                async for name in self._client.sscan_iter(key, count=SCAN_COUNT):
                    self._workflows[name].add(key)
            case "workflow":
                self._workflows[variable]
                await self._read_numbers(key, "maxAttempts", "updatedAt", "runTimeoutMs", "startTimeoutMs")
            case "config":
                await self._read_numbers(key, "format", "shards")
            case "owner_builds":
                async for build, seen_at in self._client.hscan_iter(key, count=SCAN_COUNT):
                    self._number(key, f"the time of {text(build)}", text(seen_at))
            case "counter":
                # One that ended since it was found, as the pause of the reaper does, is no fault.
                [value] = await self._ask([("GET", key)])
                self._number(key, "the counter", None if value is None else text(value))
            case "idempotency":
                self._pointers.append(key)

    async def _read_numbers(self, key: bytes, *fields: str) -> None:
        [values] = await self._ask([("HMGET", key, *fields)])
        for name, value in zip(fields, values, strict=True):
            self._number(key, name, None if value is None else text(value))

    def _number(self, key: bytes, what: str, value: str | float | None) -> None:
        if value is not None:
            self.snapshot.numbers.append(StoredNumber(text(key), what, value))

    async def read_what_was_found(self) -> None:
        """Reads each of the things found, each at one instant."""
        snapshot = self.snapshot
        async for arguments, reply in self._each(_READ_RUN, ((run_id, *seen) for run_id, seen in self._runs.items())):
            snapshot.runs.append(self._run(text(arguments[0]), reply))
        async for _, (key, change, depth) in self._each(_READ_LANE, ((name,) for name in self._lanes)):
            snapshot.lanes.append(LaneState(text(key), None if change is None else float(change), depth))
        workflows = ((name, *seen) for name, seen in self._workflows.items())
        async for arguments, (exists, is_registered, missing, strays) in self._each(_READ_WORKFLOW, workflows):
            sets = tuple(map(text, missing)), tuple(map(text, strays))
            snapshot.workflows.append(WorkflowState(text(arguments[0]), bool(exists), bool(is_registered), *sets))
        async for arguments, reply in self._each(_READ_POINTER, ((key,) for key in self._pointers)):
            if reply is not None:
                target, exists, own_key = reply
                own_key = None if own_key is None else text(own_key)
                snapshot.pointers.append(PointerState(text(arguments[0]), text(target), bool(exists), own_key))

    def _run(self, run_id: str, reply: Reply) -> RunState:
        record, scores, strays, steps, pointer, has_data, has_steps, (seconds, microseconds) = reply
        fields = {text(name): value for name, value in steps}
        return RunState(
            run_id=run_id,
            record={text(name): text(value) for name, value in zip(record[::2], record[1::2], strict=True)},
            scores={place: float(score) for place, score in zip(PLACES, scores, strict=False) if score is not None},
            strays=tuple(Stray(self._kinds[key].name, text(key), float(score)) for key, score in strays),
            headers={name[2:]: text(value) for name, value in fields.items() if name.startswith("s:")},
            sizes={name[2:]: value for name, value in fields.items() if name.startswith("o:")},
            other_step_fields=tuple(name for name in fields if name[:2] not in ("s:", "o:")),
            pointer=None if pointer is None else text(pointer),
            has_data=bool(has_data),
            has_steps=bool(has_steps),
            now_ms=int(seconds) * 1000 + int(microseconds) // 1000,
        )

    async def _each(
        self, body: str, calls: Iterable[tuple[bytes, ...]]
    ) -> AsyncIterator[tuple[tuple[bytes, ...], Reply]]:
        """Runs a script once for each tuple of arguments."""
        script = (FOLDER / "lib" / "keys.lua").read_text() + _HEAD + body
        sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        for page in _pages(list(calls)):
            commands: list[Command] = [("EVALSHA", sha, 1, self.snapshot.keys.prefix, *arguments) for arguments in page]
            replies = await self._ask([("SCRIPT LOAD", script), *commands])
            for arguments, reply in zip(page, replies[1:], strict=True):
                yield arguments, reply

    async def _ask(self, commands: Iterable[Command]) -> list[Reply]:
        # No transaction: a full Redis refuses every command in one.
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return list(await pipeline.execute())


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[i : i + PAGE] for i in range(0, len(items), PAGE))
