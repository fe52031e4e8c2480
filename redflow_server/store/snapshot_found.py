"""What there is under a prefix: its keys, and the names in them of all that a snapshot reads."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from redis.asyncio import Redis

from redflow_server.store.codec import Reply, optional_text, text
from redflow_server.store.key_kinds import Kind, kind_of
from redflow_server.store.snapshot_calls import PAGE, SnapshotCalls, pages
from redflow_server.store.snapshot_scripts import READ_KEY
from redflow_server.store.snapshot_states import KeyState, StoredNumber

SCAN_COUNT: Final = 1000
SCANS: Final = {"zset": "ZSCAN", "set": "SSCAN", "hash": "HSCAN"}
OF_RUNS: Final = frozenset({"lane", "scheduled", "leases", "deadlines", "status", "workflow_status", "finished"})
"""Sorted sets of runs."""
NUMBERED: Final = frozenset(
    {"lanes", "sessions", "outbox", "fan_outs", "cron_times", "timers", "event_waits", "event_memory", "deliveries"}
)
"""Sorted sets of other things than runs."""
PAGED: Final = (
    *(*OF_RUNS, *NUMBERED, "workflows", "event_workflows", "owner_workflows"),
    *("owner_builds", "cron_def", "cron_skipped", "cron_problem"),
)
"""The kinds of keys whose members are all looked at."""
FIELDS: Final = {
    "workflow": ("cronIdsJson", "maxAttempts", "updatedAt", "runTimeoutMs", "startTimeoutMs", "failureHandlerMs"),
    "config": ("format", "shards"),
    "emitted": ("expiresAt", "part", "parts"),
}
"""The fields of hashes that are looked at: all numbers but for one."""


@dataclass(slots=True)
class Found:
    """Names as bytes: foreign hands may have written some that are no UTF-8. Runs and workflows with the sets that
    have them, standing waits with theirs, schedules with the workflows that list them.
    """

    stored: list[KeyState] = field(default_factory=list)
    numbers: list[StoredNumber] = field(default_factory=list)
    kinds: dict[bytes, Kind] = field(default_factory=dict)
    runs: defaultdict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    workflows: defaultdict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    lanes: set[bytes] = field(default_factory=set)
    pointers: list[bytes] = field(default_factory=list)
    outbox: list[bytes] = field(default_factory=list)
    events: set[bytes] = field(default_factory=set)
    event_keys: list[bytes] = field(default_factory=list)
    standing: list[tuple[bytes, bytes]] = field(default_factory=list)
    remembered: list[bytes] = field(default_factory=list)
    channels: set[bytes] = field(default_factory=set)
    deliveries: list[bytes] = field(default_factory=list)
    schedules: defaultdict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))


class Finder:
    """One pass over a prefix."""

    def __init__(self, client: Redis, calls: SnapshotCalls, prefix: bytes) -> None:
        self._client = client
        self._calls = calls
        self._prefix = prefix
        self._found = Found()

    async def find(self) -> Found:
        """Finds the keys, and in them the names of all that is to be read: for runs and workflows, with the sets."""
        pattern = re.sub(rb"([*?\[\]\\^-])", rb"\\\1", self._prefix) + b"*"
        names = {name async for name in self._client.scan_iter(match=pattern, count=SCAN_COUNT)}
        await self._read_keys(sorted(names))
        for key, kind in self._found.kinds.items():
            self._note_key(key, kind)
        await self._page_through([key for key, kind in self._found.kinds.items() if kind.name in PAGED])
        await self._read_fields([key for key, kind in self._found.kinds.items() if kind.name in FIELDS])
        await self._read_counters([key for key, kind in self._found.kinds.items() if kind.name == "counter"])
        return self._found

    async def _read_keys(self, names: Sequence[bytes]) -> None:
        calls = [(name, re.sub(rb":builds\Z", b":workflows", name)) for name in names]
        async for (name, _), (type_, ttl_ms, has_owner) in self._calls.each(READ_KEY, calls):
            if type_ == b"none":
                continue
            kind = kind_of(name.removeprefix(self._prefix))
            self._found.stored.append(KeyState(text(name), kind, text(type_), ttl_ms, bool(has_owner)))
            if kind is not None and kind.type == text(type_):
                self._found.kinds[name] = kind

    def _note_key(self, key: bytes, kind: Kind) -> None:
        match kind.name:
            case "lane":
                self._found.lanes.add(self._variable(key))
            case "run" | "data" | "steps" | "waits" | "awaiters" | "cursors" | "children":
                self._found.runs[self._variable(key)]
            case "event_log":
                self._found.channels.add(self._variable(key))
            case "workflow":
                self._found.workflows[self._variable(key)]
            case "idempotency":
                self._found.pointers.append(key)
            case "emitted":
                self._found.events.add(self._variable(key))
            case "event_key":
                self._found.event_keys.append(key)

    def _variable(self, key: bytes) -> bytes:
        return self._found.kinds[key].match(key.removeprefix(self._prefix)) or b""

    async def _page_through(self, keys: Sequence[bytes]) -> None:
        """Many keys in each round trip: a prefix has more small sets than large ones."""
        cursors = dict.fromkeys(keys, 0)
        while cursors:
            page = list(islice(cursors.items(), PAGE))
            scans = [(SCANS[self._found.kinds[key].type], key, cursor, "COUNT", SCAN_COUNT) for key, cursor in page]
            for (key, _), (cursor, members) in zip(page, await self._calls.ask(scans), strict=True):
                self._note_members(key, self._found.kinds[key], members)
                if cursor == 0:
                    del cursors[key]
                else:
                    cursors[key] = cursor

    def _note_members(self, key: bytes, kind: Kind, members: Reply) -> None:
        match kind.name:
            case "workflows" | "event_workflows" | "owner_workflows":
                for name in members:
                    self._found.workflows[name].add(key)
            case "owner_builds":
                for build, seen_at in members.items():
                    self._number(key, f"the time of {text(build)}", text(seen_at))
            case "cron_def" | "cron_skipped" | "cron_problem":
                for schedule_id, value in members.items():
                    self._found.schedules[schedule_id]
                    if kind.name == "cron_skipped":
                        self._number(key, f"the count of {text(schedule_id)}", text(value))
            case _ if kind.name in OF_RUNS:
                for run_id, _ in members:
                    self._found.runs[run_id].add(key)
            case _:
                for member, score in members:
                    self._number(key, f"the score of {text(member)}", score)
                    self._note_numbered(key, kind, member)

    def _note_numbered(self, key: bytes, kind: Kind, member: bytes) -> None:
        match kind.name:
            case "lanes":
                self._found.lanes.add(member)
            case "outbox":
                self._found.outbox.append(member)
            case "fan_outs":
                self._found.events.add(member)
            case "cron_times":
                self._found.schedules[member]
            case "timers" | "event_waits":
                self._found.standing.append((key, member))
            case "event_memory":
                self._found.remembered.append(member)
            case "deliveries":
                self._found.deliveries.append(member)

    async def _read_fields(self, keys: Sequence[bytes]) -> None:
        for page in pages(keys):
            names = [FIELDS[self._found.kinds[key].name] for key in page]
            replies = await self._calls.ask([("HMGET", key, *fields) for key, fields in zip(page, names, strict=True)])
            for key, fields, values in zip(page, names, replies, strict=True):
                for name, value in zip(fields, values, strict=True):
                    if name == "cronIdsJson":
                        self._note_schedules(self._variable(key), value)
                    else:
                        self._number(key, name, optional_text(value))

    def _note_schedules(self, workflow: bytes, raw: bytes | None) -> None:
        with suppress(ValueError):
            ids = json.loads(raw or b"[]")
            for schedule_id in ids if isinstance(ids, list) else ():
                self._found.schedules[str(schedule_id).encode()].add(workflow)

    async def _read_counters(self, keys: Sequence[bytes]) -> None:
        for key, value in zip(keys, await self._calls.ask([("GET", key) for key in keys]), strict=True):
            # One that ended since it was found, as the pause of the reaper does, is no fault.
            self._number(key, "the counter", optional_text(value))

    def _number(self, key: bytes, what: str, value: str | float | None) -> None:
        if value is not None:
            self._found.numbers.append(StoredNumber(text(key), what, value))
