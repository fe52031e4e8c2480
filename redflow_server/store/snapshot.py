"""Everything under a prefix, read for a check of what must hold while others write.

SCAN finds which keys, runs, lanes, workflows and idempotency keys there are. Then each of them is read by one small
script, with every place that has it: what a snapshot says of one run is true of one instant, though no two runs in it
need be of the same one. So a run that moves meanwhile cannot look wrong. Of the values of steps only sizes are read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Final, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from redflow_server.store.codec import Reply, text
from redflow_server.store.key_kinds import Kind, kind_of
from redflow_server.store.keys import Keys
from redflow_server.store.scripts import FOLDER
from redflow_server.store.snapshot_scripts import (
    HEAD,
    READ_CHANNEL,
    READ_DELIVERY,
    READ_EVENT,
    READ_EVENT_BYTES,
    READ_EVENT_KEY,
    READ_KEY,
    READ_LANE,
    READ_OUTBOX_ENTRY,
    READ_POINTER,
    READ_REMEMBERED,
    READ_RUN,
    READ_SCHEDULE,
    READ_STANDING_WAIT,
    READ_WORKFLOW,
)
from redflow_server.store.snapshot_states import (
    Awaiter,
    ChannelState,
    DeliveryState,
    EventKeyState,
    EventState,
    KeyState,
    LaneState,
    LoggedEvent,
    OpenWait,
    OutboxEntry,
    PointerState,
    RememberedEvent,
    RunState,
    ScheduleState,
    Snapshot,
    StandingWait,
    StoredNumber,
    Stray,
    WorkflowState,
    number,
)
from redflow_server.store.wire import unavailable

T = TypeVar("T")
Command = tuple[bytes | str | int, ...]

SCAN_COUNT: Final = 1000
PAGE: Final = 200
"""Commands in one round trip."""
SUMMED: Final = 5000
"""Remembered events whose sizes one script adds up."""

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
PLACES: Final = ("scheduled", "leases", "deadlines", "lane", "status", "workflow_status", "finished")
"""The sorted sets that a run may be in, in the order in which the script answers."""


async def read_snapshot(client: Redis, keys: Keys) -> Snapshot:
    """Reads everything under the prefix, in pages, with a client that answers bytes. O(everything).

    Raises StoreUnavailable.
    """
    reader = _Reader(client, keys)
    try:
        await reader.find()
        await reader.read_what_was_found()
    except (RedisError, OSError) as error:
        raise unavailable(error) from error
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
        self._outbox: list[bytes] = []
        self._events: set[bytes] = set()
        self._event_keys: list[bytes] = []
        self._standing: list[tuple[bytes, bytes]] = []
        self._remembered: list[bytes] = []
        self._channels: set[bytes] = set()
        self._deliveries: list[bytes] = []
        self._schedules: defaultdict[bytes, set[bytes]] = defaultdict(set)

    async def find(self) -> None:
        """Finds the keys, and in them the names of all that is to be read: for runs and workflows, with the sets."""
        pattern = re.sub(rb"([*?\[\]\\^-])", rb"\\\1", self._prefix) + b"*"
        names = {name async for name in self._client.scan_iter(match=pattern, count=SCAN_COUNT)}
        await self._read_keys(sorted(names))
        for key, kind in self._kinds.items():
            self._note_key(key, kind)
        await self._page_through([key for key, kind in self._kinds.items() if kind.name in PAGED])
        await self._read_fields([key for key, kind in self._kinds.items() if kind.name in FIELDS])
        await self._read_counters([key for key, kind in self._kinds.items() if kind.name == "counter"])

    async def _read_keys(self, names: Sequence[bytes]) -> None:
        calls = [(name, re.sub(rb":builds\Z", b":workflows", name)) for name in names]
        async for (name, _), (type_, ttl_ms, has_owner) in self._each(READ_KEY, calls):
            if type_ == b"none":
                continue
            kind = kind_of(name.removeprefix(self._prefix))
            self.snapshot.stored.append(KeyState(text(name), kind, text(type_), ttl_ms, bool(has_owner)))
            if kind is not None and kind.type == text(type_):
                self._kinds[name] = kind

    def _note_key(self, key: bytes, kind: Kind) -> None:
        match kind.name:
            case "lane":
                self._lanes.add(self._variable(key))
            case "run" | "data" | "steps" | "waits" | "awaiters" | "cursors" | "children":
                self._runs[self._variable(key)]
            case "event_log":
                self._channels.add(self._variable(key))
            case "workflow":
                self._workflows[self._variable(key)]
            case "idempotency":
                self._pointers.append(key)
            case "emitted":
                self._events.add(self._variable(key))
            case "event_key":
                self._event_keys.append(key)

    def _variable(self, key: bytes) -> bytes:
        return self._kinds[key].match(key.removeprefix(self._prefix)) or b""

    async def _page_through(self, keys: Sequence[bytes]) -> None:
        """Many keys in each round trip: a prefix has more small sets than large ones."""
        cursors = dict.fromkeys(keys, 0)
        while cursors:
            page = list(islice(cursors.items(), PAGE))
            scans = [(SCANS[self._kinds[key].type], key, cursor, "COUNT", SCAN_COUNT) for key, cursor in page]
            for (key, _), (cursor, members) in zip(page, await self._ask(scans), strict=True):
                self._note_members(key, self._kinds[key], members)
                if cursor == 0:
                    del cursors[key]
                else:
                    cursors[key] = cursor

    def _note_members(self, key: bytes, kind: Kind, members: Reply) -> None:
        match kind.name:
            case "workflows" | "event_workflows" | "owner_workflows":
                for name in members:
                    self._workflows[name].add(key)
            case "owner_builds":
                for build, seen_at in members.items():
                    self._number(key, f"the time of {text(build)}", text(seen_at))
            case "cron_def" | "cron_skipped" | "cron_problem":
                for schedule_id, value in members.items():
                    self._schedules[schedule_id]
                    if kind.name == "cron_skipped":
                        self._number(key, f"the count of {text(schedule_id)}", text(value))
            case _ if kind.name in OF_RUNS:
                for run_id, _ in members:
                    self._runs[run_id].add(key)
            case _:
                for member, score in members:
                    self._number(key, f"the score of {text(member)}", score)
                    self._note_numbered(key, kind, member)

    def _note_numbered(self, key: bytes, kind: Kind, member: bytes) -> None:
        match kind.name:
            case "lanes":
                self._lanes.add(member)
            case "outbox":
                self._outbox.append(member)
            case "fan_outs":
                self._events.add(member)
            case "cron_times":
                self._schedules[member]
            case "timers" | "event_waits":
                self._standing.append((key, member))
            case "event_memory":
                self._remembered.append(member)
            case "deliveries":
                self._deliveries.append(member)

    async def _read_fields(self, keys: Sequence[bytes]) -> None:
        for page in _pages(keys):
            names = [FIELDS[self._kinds[key].name] for key in page]
            replies = await self._ask([("HMGET", key, *fields) for key, fields in zip(page, names, strict=True)])
            for key, fields, values in zip(page, names, replies, strict=True):
                for name, value in zip(fields, values, strict=True):
                    if name == "cronIdsJson":
                        self._note_schedules(self._variable(key), value)
                    else:
                        self._number(key, name, _optional(value))

    def _note_schedules(self, workflow: bytes, raw: bytes | None) -> None:
        with suppress(ValueError):
            ids = json.loads(raw or b"[]")
            for schedule_id in ids if isinstance(ids, list) else ():
                self._schedules[str(schedule_id).encode()].add(workflow)

    async def _read_counters(self, keys: Sequence[bytes]) -> None:
        for key, value in zip(keys, await self._ask([("GET", key) for key in keys]), strict=True):
            # One that ended since it was found, as the pause of the reaper does, is no fault.
            self._number(key, "the counter", _optional(value))

    def _number(self, key: bytes, what: str, value: str | float | None) -> None:
        if value is not None:
            self.snapshot.numbers.append(StoredNumber(text(key), what, value))

    async def read_what_was_found(self) -> None:
        """Reads each of the things found, each at one instant."""
        snapshot = self.snapshot
        async for arguments, reply in self._each(READ_RUN, ((run_id, *seen) for run_id, seen in self._runs.items())):
            snapshot.runs.append(self._run(text(arguments[0]), reply))
        async for _, (key, change, depth) in self._each(READ_LANE, ((name,) for name in self._lanes)):
            snapshot.lanes.append(LaneState(text(key), None if change is None else float(change), depth))
        workflows = ((name, *seen) for name, seen in self._workflows.items())
        async for arguments, (exists, is_registered, missing, strays) in self._each(READ_WORKFLOW, workflows):
            sets = tuple(map(text, missing)), tuple(map(text, strays))
            snapshot.workflows.append(WorkflowState(text(arguments[0]), bool(exists), bool(is_registered), *sets))
        async for arguments, reply in self._each(READ_POINTER, ((key,) for key in self._pointers)):
            if reply is not None:
                target, exists, own_key = reply
                own_key = None if own_key is None else text(own_key)
                snapshot.pointers.append(PointerState(text(arguments[0]), text(target), bool(exists), own_key))
        await self._read_between_runs()
        await self._read_events()
        await self._read_event_bytes()

    async def _read_between_runs(self) -> None:
        snapshot = self.snapshot
        async for arguments, reply in self._each(READ_OUTBOX_ENTRY, ((entry,) for entry in self._outbox)):
            if reply is not None:
                score, (seconds, _) = reply
                snapshot.outbox.append(OutboxEntry(text(arguments[0]), int(seconds) * 1000 - float(score)))
        async for (key, member), reply in self._each(READ_STANDING_WAIT, self._standing):
            if reply is not None:
                among = snapshot.timers if self._kinds[key].name == "timers" else snapshot.event_waits
                among.append(StandingWait(text(key), text(member), reply[0] == 1))
        calls = ((schedule_id, *workflows) for schedule_id, workflows in self._schedules.items())
        async for arguments, (is_defined, workflow, listed_by, *flags) in self._each(READ_SCHEDULE, calls):
            names = text(workflow), tuple(map(text, listed_by))
            schedule = ScheduleState(text(arguments[0]), bool(is_defined), *names, *map(bool, flags))
            snapshot.schedules.append(schedule)

    async def _read_events(self) -> None:
        snapshot = self.snapshot
        async for arguments, reply in self._each(READ_EVENT, ((event_id,) for event_id in self._events)):
            exists, ttl_ms, is_fanning_out, name, expires_at, has_part = reply
            if exists or is_fanning_out is not None:
                fields = _optional(name), _optional(expires_at), has_part == 1
                event = EventState(text(arguments[0]), bool(exists), ttl_ms, is_fanning_out is not None, *fields)
                snapshot.events.append(event)
        async for arguments, reply in self._each(READ_EVENT_KEY, ((key,) for key in self._event_keys)):
            if reply is not None:
                snapshot.event_keys.append(EventKeyState(text(arguments[0]), text(reply[0]), _optional(reply[1])))
        async for (entry,), reply in self._each(READ_REMEMBERED, ((entry,) for entry in self._remembered)):
            if reply is not None:
                snapshot.remembered.append(RememberedEvent(text(entry), float(reply[0]), reply[1] == 1))
        async for (channel,), (exists, events, is_held) in self._each(READ_CHANNEL, ((one,) for one in self._channels)):
            if exists:
                logged = tuple(LoggedEvent(text(entry_id), there == 1) for entry_id, there in events)
                snapshot.channels.append(ChannelState(snapshot.keys.event_log(text(channel)), logged, is_held == 1))
        async for (entry,), reply in self._each(READ_DELIVERY, ((entry,) for entry in self._deliveries)):
            if reply is not None:
                at, (seconds, _) = reply
                age_ms = None if at is None else int(seconds) * 1000 - (number(text(at)) or 0)
                snapshot.deliveries.append(DeliveryState(text(entry), age_ms))

    async def _read_event_bytes(self) -> None:
        """Adds the sizes up in parts, which are of one instant only if nothing was remembered or forgotten in between.
        Of a memory that does not stand still for so long nothing is said.
        """
        count = len(self._remembered)
        for _ in range(3):
            parts = [(b"%d" % at, b"%d" % (at + SUMMED - 1)) for at in range(0, count + 1, SUMMED)]
            replies = [reply async for _, reply in self._each(READ_EVENT_BYTES, parts)]
            states = {(text(counted), count, seq) for counted, count, seq, _ in replies}
            counted, count, _ = states.pop()
            if not states and count <= len(parts) * SUMMED:
                self.snapshot.event_bytes = counted, sum(int(part) for *_, part in replies)
                return

    def _run(self, run_id: str, reply: Reply) -> RunState:
        record, scores, strays, steps, pointer, has_data, has_steps, time, *of_waits = reply
        waits, awaiters, is_waking, is_withdrawing, is_closing, cursors, has_children = of_waits
        seconds, microseconds = time
        fields = {text(name): value for name, value in steps}
        return RunState(
            run_id=run_id,
            record=_flat(record),
            scores={place: float(score) for place, score in zip(PLACES, scores, strict=False) if score is not None},
            strays=tuple(Stray(self._kinds[key].name, text(key), float(score)) for key, score in strays),
            headers={name[2:]: text(value) for name, value in fields.items() if name.startswith("s:")},
            sizes={name[2:]: value for name, value in fields.items() if name.startswith("o:")},
            other_step_fields=tuple(name for name in fields if name[:2] not in ("s:", "o:")),
            pointer=None if pointer is None else text(pointer),
            has_data=bool(has_data),
            has_steps=bool(has_steps),
            now_ms=int(seconds) * 1000 + int(microseconds) // 1000,
            waits=tuple(map(_open_wait, waits)),
            awaiters=tuple(Awaiter(text(name), has_wait == 1) for name, has_wait in awaiters),
            is_waking=is_waking == 1,
            is_withdrawing=is_withdrawing == 1,
            is_closing=is_closing == 1,
            cursors=_flat(cursors),
            has_children=bool(has_children),
        )

    async def _each(
        self, body: str, calls: Iterable[tuple[bytes, ...]]
    ) -> AsyncIterator[tuple[tuple[bytes, ...], Reply]]:
        """Runs a script once for each tuple of arguments."""
        script, sha = _script(body)
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


@cache
def _script(body: str) -> tuple[str, str]:
    """What Redis runs, and the name it gives it."""
    names = "".join((FOLDER / "lib" / f"{file}.lua").read_text() for file in ("keys", "lane_name"))
    script = names + HEAD + body
    return script, hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[i : i + PAGE] for i in range(0, len(items), PAGE))


def _flat(reply: Sequence[bytes]) -> dict[str, str]:
    return {text(name): text(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _open_wait(reply: Reply) -> OpenWait:
    step, entry, kind, since, deadline, target, timer_at, place, is_known, has_end, missed = reply
    return OpenWait(
        step=text(step),
        entry=text(entry),
        kind=text(kind),
        since=text(since),
        deadline=text(deadline),
        target=text(target),
        timer_at=None if timer_at is None else float(timer_at),
        place=None if place is None else float(place),
        is_known=is_known == 1,
        has_end=has_end == 1,
        missed=_optional(missed),
    )


def _optional(raw: bytes | None) -> str | None:
    return None if raw is None else text(raw)
