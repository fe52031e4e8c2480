"""Everything under a prefix, read for a check of what must hold while others write.

SCAN finds which keys, runs, lanes, workflows and idempotency keys there are. Then each of them is read by one small
script, with every place that has it: what a snapshot says of one run is true of one instant, though no two runs in it
need be of the same one. So a run that moves meanwhile cannot look wrong. Of the values of steps only sizes are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from redflow_server.store.codec import Reply, optional_text, text
from redflow_server.store.keys import Keys
from redflow_server.store.snapshot_calls import SnapshotCalls
from redflow_server.store.snapshot_found import Finder, Found
from redflow_server.store.snapshot_scripts import (
    READ_CHANNEL,
    READ_DELIVERY,
    READ_EVENT,
    READ_EVENT_BYTES,
    READ_EVENT_KEY,
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
    Stray,
    WorkflowState,
    number,
)
from redflow_server.store.wire import unavailable

SUMMED: Final = 5000
"""Remembered events whose sizes one script adds up."""
PLACES: Final = ("scheduled", "leases", "deadlines", "lane", "status", "workflow_status", "finished")
"""The sorted sets that a run may be in, in the order in which the script answers."""


async def read_snapshot(client: Redis, keys: Keys) -> Snapshot:
    """Reads everything under the prefix, in pages, with a client that answers bytes. O(everything).

    Raises StoreUnavailable.
    """
    calls = SnapshotCalls(client, keys.prefix)
    try:
        found = await Finder(client, calls, keys.prefix.encode() + b":").find()
        reader = _Reader(calls, keys, found)
        await reader.read_what_was_found()
    except (RedisError, OSError) as error:
        raise unavailable(error) from error
    return reader.snapshot


class _Reader:
    """Reads what was found."""

    def __init__(self, calls: SnapshotCalls, keys: Keys, found: Found) -> None:
        self.snapshot = Snapshot(keys, stored=found.stored, numbers=found.numbers)
        self._calls = calls
        self._found = found

    async def read_what_was_found(self) -> None:
        """Reads each of the things found, each at one instant."""
        snapshot = self.snapshot
        async for arguments, reply in self._calls.each(
            READ_RUN, ((run_id, *seen) for run_id, seen in self._found.runs.items())
        ):
            snapshot.runs.append(self._run(text(arguments[0]), reply))
        async for _, (key, change, depth) in self._calls.each(READ_LANE, ((name,) for name in self._found.lanes)):
            snapshot.lanes.append(LaneState(text(key), None if change is None else float(change), depth))
        workflows = ((name, *seen) for name, seen in self._found.workflows.items())
        async for arguments, (exists, is_registered, missing, strays) in self._calls.each(READ_WORKFLOW, workflows):
            sets = tuple(map(text, missing)), tuple(map(text, strays))
            snapshot.workflows.append(WorkflowState(text(arguments[0]), bool(exists), bool(is_registered), *sets))
        async for arguments, reply in self._calls.each(READ_POINTER, ((key,) for key in self._found.pointers)):
            if reply is not None:
                target, exists, own_key = reply
                leads_to = text(target), bool(exists), optional_text(own_key)
                snapshot.pointers.append(PointerState(text(arguments[0]), *leads_to))
        await self._read_between_runs()
        await self._read_events()
        await self._read_event_bytes()

    async def _read_between_runs(self) -> None:
        snapshot = self.snapshot
        async for arguments, reply in self._calls.each(READ_OUTBOX_ENTRY, ((entry,) for entry in self._found.outbox)):
            if reply is not None:
                score, (seconds, _) = reply
                snapshot.outbox.append(OutboxEntry(text(arguments[0]), int(seconds) * 1000 - float(score)))
        async for (key, member), reply in self._calls.each(READ_STANDING_WAIT, self._found.standing):
            if reply is not None:
                among = snapshot.timers if self._found.kinds[key].name == "timers" else snapshot.event_waits
                among.append(StandingWait(text(key), text(member), reply[0] == 1))
        calls = ((schedule_id, *workflows) for schedule_id, workflows in self._found.schedules.items())
        async for arguments, (is_defined, workflow, listed_by, *flags) in self._calls.each(READ_SCHEDULE, calls):
            names = text(workflow), tuple(map(text, listed_by))
            schedule = ScheduleState(text(arguments[0]), bool(is_defined), *names, *map(bool, flags))
            snapshot.schedules.append(schedule)

    async def _read_events(self) -> None:
        snapshot = self.snapshot
        async for arguments, reply in self._calls.each(READ_EVENT, ((event_id,) for event_id in self._found.events)):
            exists, ttl_ms, is_fanning_out, name, expires_at, has_part = reply
            if exists or is_fanning_out is not None:
                fields = optional_text(name), optional_text(expires_at), has_part == 1
                event = EventState(text(arguments[0]), bool(exists), ttl_ms, is_fanning_out is not None, *fields)
                snapshot.events.append(event)
        async for arguments, reply in self._calls.each(READ_EVENT_KEY, ((key,) for key in self._found.event_keys)):
            if reply is not None:
                snapshot.event_keys.append(EventKeyState(text(arguments[0]), text(reply[0]), optional_text(reply[1])))
        async for (entry,), reply in self._calls.each(READ_REMEMBERED, ((entry,) for entry in self._found.remembered)):
            if reply is not None:
                snapshot.remembered.append(RememberedEvent(text(entry), float(reply[0]), reply[1] == 1))
        async for (channel,), (exists, events, is_held) in self._calls.each(
            READ_CHANNEL, ((one,) for one in self._found.channels)
        ):
            if exists:
                logged = tuple(LoggedEvent(text(entry_id), there == 1) for entry_id, there in events)
                snapshot.channels.append(ChannelState(snapshot.keys.event_log(text(channel)), logged, is_held == 1))
        async for (entry,), reply in self._calls.each(READ_DELIVERY, ((entry,) for entry in self._found.deliveries)):
            if reply is not None:
                at, (seconds, _) = reply
                age_ms = None if at is None else int(seconds) * 1000 - (number(text(at)) or 0)
                snapshot.deliveries.append(DeliveryState(text(entry), age_ms))

    async def _read_event_bytes(self) -> None:
        """Adds the sizes up in parts, which are of one instant only if nothing was remembered or forgotten in between.
        Of a memory that does not stand still for so long nothing is said.
        """
        count = len(self._found.remembered)
        for _ in range(3):
            parts = [(b"%d" % at, b"%d" % (at + SUMMED - 1)) for at in range(0, count + 1, SUMMED)]
            replies = [reply async for _, reply in self._calls.each(READ_EVENT_BYTES, parts)]
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
            strays=tuple(Stray(self._found.kinds[key].name, text(key), float(score)) for key, score in strays),
            headers={name[2:]: text(value) for name, value in fields.items() if name.startswith("s:")},
            sizes={name[2:]: value for name, value in fields.items() if name.startswith("o:")},
            other_step_fields=tuple(name for name in fields if name[:2] not in ("s:", "o:")),
            pointer=optional_text(pointer),
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
        missed=optional_text(missed),
    )
