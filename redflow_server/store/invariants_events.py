"""What must hold of events: of those that were emitted, and of the memory that waits get them from. The rules are in
the table of `invariants.py`.
"""

from __future__ import annotations

from typing import Final

from redflow_server.store.invariants_between import Findings
from redflow_server.store.snapshot_states import Snapshot

MAX_OF_CHANNEL: Final = 100
MAX_DELIVERY_AGE_MS: Final = 60_000


def events(snapshot: Snapshot) -> Findings:
    """An emitted event is kept while runs of it are left to start, and then for as long as repeats are answered."""
    for event in snapshot.events:
        key = snapshot.keys.emitted(event.event_id)
        if not event.exists:
            yield event.event_id, "has subscribers left to start, but nothing is known of it"
            continue
        if event.name is None or event.expires_at is None:
            yield key, "lacks a name, or the end of its window"
        if event.is_fanning_out and not event.has_part:
            yield key, "is to start subscribers, but has none left"
        if event.has_part and not event.is_fanning_out:
            yield key, "has subscribers left, but nobody is to start them"
        if event.is_fanning_out and event.ttl_ms >= 0:
            yield key, "has subscribers left to start, and would go before its time"
        if not event.is_fanning_out and event.ttl_ms < 0:
            yield key, "has no TTL, and nothing else removes it"
    for pointer in snapshot.event_keys:
        own = snapshot.keys.event_key(pointer.name or "", "")
        if pointer.name is not None and not pointer.key.startswith(own.removesuffix("0:")):
            yield pointer.key, f"leads to event {pointer.event_id}, which is a {pointer.name!r}"


def event_memory(snapshot: Snapshot) -> Findings:
    """The memory and the logs of all channels have the same events, not too many of one; their bytes are counted."""
    keys = snapshot.keys
    for event in snapshot.remembered:
        if not event.entry.startswith(f"{event.score:.0f} "):
            yield keys.event_memory, f"has {event.entry!r} as number {event.score:.0f}"
        if not event.is_logged:
            yield keys.event_memory, f"has {event.entry!r}, which its channel has not, or another way"
    for channel in snapshot.channels:
        for logged in channel.events:
            if not logged.is_remembered:
                yield channel.key, f"has the event {logged.entry_id}, which nobody is to forget"
        if not channel.events:
            yield channel.key, "is an empty log"
        if len(channel.events) > MAX_OF_CHANNEL and not channel.is_held:
            yield channel.key, f"has {len(channel.events)} events"
    counted, size = snapshot.event_bytes
    if counted != str(size):
        yield keys.event_bytes, f"is {counted}, but {size} bytes are remembered"


def deliveries(snapshot: Snapshot) -> Findings:
    """An event that waits are left to hear of is remembered, and all of them hear of it within a minute."""
    for one in snapshot.deliveries:
        if one.age_ms is None:
            yield snapshot.keys.deliveries, f"has {one.entry!r}, which is not remembered"
        elif one.age_ms > MAX_DELIVERY_AGE_MS:
            yield snapshot.keys.deliveries, f"has {one.entry!r} for {one.age_ms / 1000:.0f} s"
