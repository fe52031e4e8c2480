"""What Redis holds, in the model's own terms: the world of a dump, its indexes, and what fits into neither.

Every kind of key of the store's table is read here or in `projected_runs.py`. A key or field that neither knows is an
oddity, and so is what stands twice and does not agree; there must be none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from redflow_server.domain.registry import WorkflowDefinition
from redflow_server.store import codec, codec_registry
from redflow_server.store.keys import lane_of
from tests.oracle.dump import Dump, size_of
from tests.oracle.model.world import (
    Announced,
    CronOnRecord,
    Emitted,
    Expiry,
    FanOut,
    Pointer,
    Registered,
    RememberedEvent,
    World,
)
from tests.oracle.projected_runs import Reader, add_runs

CONFIG: Final = {b"engine": b"redflow-gateway", b"format": b"1", b"shards": b"1"}


def project(dump: Dump) -> tuple[World, dict[str, object], list[str]]:
    """World, indexes and oddities."""
    reader = Reader(dump)
    world = World(
        is_ours=reader.hash("config") == CONFIG,
        run_seq=reader.counter("run-seq") or 0,
        lane_seq=reader.counter("lane-seq") or 0,
        event_seq=reader.counter("event-seq"),
        events_dropped=reader.counter("events-dropped") or 0,
        reap_last=reader.counter("reap:last"),
        reap_not_before=reader.counter("reap:not-before"),
        outbox=reader.times("outbox"),
        fan_outs=reader.times("fan-outs"),
        sessions=reader.times("sessions"),
        cron_last=reader.times("cron:last"),
        lane_changes={lane_of(name): at for name, at in reader.times("lanes").items()},
    )
    for entry, at in reader.times("deliveries").items():
        number, _, channel = entry.partition(" ")
        world.deliveries[int(number), channel] = at
    indexes = add_runs(reader, world)
    _add_pointers(reader, world)
    _add_events(reader, world)
    _add_registry(reader, world)
    _add_schedules(reader, world)
    indexes |= {
        "filled lanes": set(world.lane_changes),
        "event workflows": _sets(reader, "event:", ":workflows", str),
        "owner workflows": _sets(reader, "owner:", ":workflows", _uncounted),
        "workflows": reader.members("workflows"),
        "event bytes": reader.counter("event-bytes") or 0,
    }
    return world, indexes, [*reader.oddities, *reader.unread()]


def _uncounted(part: str) -> str:
    """The text of one part with its length."""
    return part.partition(":")[2]


def two_parts(name: str) -> tuple[str, str]:
    """The texts of two parts, each with its length."""
    parts = lane_of(name)
    return parts.queue, parts.workflow


def _sets(reader: Reader, start: str, end: str, read: Callable[[str], str]) -> dict[str, set[str]]:
    names = reader.names(reader.dump.sets, start, end)
    return {read(name): reader.members(f"{start}{name}{end}") for name in names}


def _add_pointers(reader: Reader, world: World) -> None:
    for kind, pointers in (("idempotency:", world.pointers), ("event-key:", world.event_keys)):
        for name in reader.names(reader.dump.strings, kind):
            key = f"{kind}{name}"
            pointers[two_parts(name)] = Pointer(reader.string(key), reader.expiry(key) or Expiry(-1))


# ---- events ----


def _add_events(reader: Reader, world: World) -> None:
    for event_id in reader.names(reader.dump.hashes, "emitted:"):
        world.emitted[event_id] = _emitted(reader, event_id)
    remembered = reader.times("event-memory")
    logged = {}
    for channel in reader.names(reader.dump.streams, "event-log:"):
        for entry_id, fields in reader.stream(f"event-log:{channel}"):
            number = int(entry_id.partition(b"-")[0])
            event = RememberedEvent(
                number,
                channel,
                codec.text(fields[b"id"]),
                int(fields[b"at"]),
                fields[b"payload"],
                fields[b"meta"],
            )
            size = size_of(event.payload) + len(event.meta) + len(channel.encode()) + 200
            logged[f"{number} {event.at} {size} {channel}"] = event
            if fields[b"bytes"] != str(size).encode():
                reader.odd(f"event {number} of {channel} has {fields[b'bytes']!r} bytes instead of {size}")
    for entry in logged.keys() ^ remembered.keys():
        reader.odd(f"{entry!r} is in the event memory or the log of its channel, but not in both")
    world.memory = sorted(logged.values(), key=lambda event: event.number)


def _emitted(reader: Reader, event_id: str) -> Emitted:
    key = f"emitted:{event_id}"
    fields = {codec.text(name): value for name, value in reader.hash(key).items()}
    emitted = Emitted(
        name=codec.text(fields.pop("name", b"")),
        run_ids=tuple(codec.text(fields.pop("runIds", b"")).split()),
        expires_at=int(fields.pop("expiresAt", b"-1")),
        expiry=reader.expiry(key),
    )
    for name in [name for name in fields if name.startswith("queue:")]:
        emitted.queues[name.removeprefix("queue:")] = codec.text(fields.pop(name))
    if "parts" in fields:
        part, parts = int(fields.pop("part")), int(fields.pop("parts"))
        left = {at: json.loads(fields.pop(f"part:{at}")) for at in range(part, parts + 1)}
        emitted.fan_out = FanOut(
            payload=fields.pop("payload"),
            meta=fields.pop("meta"),
            digest=codec.text(fields.pop("digest")),
            available_at=codec.number(fields.pop("availableAt")),
            number=codec.number(fields.pop("number")),
            parts=[left.get(at, []) for at in range(1, parts + 1)],
            part=part,
        )
    for name in fields:
        reader.odd(f"{key} has a field {name!r}")
    return emitted


# ---- registry ----


def _add_registry(reader: Reader, world: World) -> None:
    for owner in reader.names(reader.dump.hashes, "owner:", ":builds"):
        builds = reader.hash(f"owner:{owner}:builds")
        world.builds[_uncounted(owner)] = {codec.text(build): int(at) for build, at in builds.items()}
    for name in reader.names(reader.dump.hashes, "workflow:"):
        world.workflows[name] = _registered(reader, name)
    for session_id in reader.names(reader.dump.strings, "session:"):
        key = f"session:{session_id}"
        worker = codec_registry.decode_worker(reader.string(key).encode())
        world.session_documents[session_id] = Announced(worker, reader.expiry(key) or Expiry(-1))


def _registered(reader: Reader, name: str) -> Registered:
    stored = reader.hash(f"workflow:{name}")
    known = codec_registry.decode_workflow([part for pair in stored.items() for part in pair])
    fields = {codec.text(field): codec.text(value) for field, value in stored.items()}
    registered = Registered(
        definition=known.definition,
        owner=fields.pop("owner"),
        build=fields.pop("buildId"),
        updated_at=int(fields.pop("updatedAt")),
        cron_ids=json.loads(fields.pop("cronIdsJson", "[]")),
        former_queues=[(queue, int(at)) for queue, at in json.loads(fields.pop("formerQueuesJson", "[]"))],
        retry_policy=fields.pop("retryPolicy", ""),
        handler_ms=int(fields.pop("failureHandlerMs", "0")) or None,
    )
    fields.pop("definitionJson")
    if fields != (expected := _fields_of(known.definition)):
        reader.odd(f"workflow {name!r} has {fields} beside a definition that says {expected}")
    return registered


def _fields_of(definition: WorkflowDefinition) -> dict[str, str]:
    """The fields of a definition that scripts read, as they stand beside it."""
    fields = {
        "name": definition.name,
        "digest": definition.digest,
        "queue": definition.queue,
        "maxAttempts": str(definition.max_attempts),
        "eventsJson": codec.dump(sorted(set(definition.event_names))).decode(),
    }
    if definition.run_timeout_ms:
        fields["runTimeoutMs"] = str(definition.run_timeout_ms)
    if definition.start_timeout_ms:
        fields["startTimeoutMs"] = str(definition.start_timeout_ms)
    return fields


def _add_schedules(reader: Reader, world: World) -> None:
    documents, planned = reader.hash("cron:def"), reader.times("cron:next")
    skipped, problems = reader.hash("cron:skipped"), reader.hash("cron:problem")
    for raw, document in documents.items():
        name = codec.text(raw)
        problem = codec.text(problems.get(raw))
        world.crons[name] = CronOnRecord(document, planned.get(name), int(skipped.get(raw, b"0")), problem)
    for raw in (*skipped, *problems, *(name.encode() for name in planned)):
        if raw not in documents:
            reader.odd(f"cron schedule {raw!r} has no definition")
