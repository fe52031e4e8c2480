"""Events: what somebody tells all workflows that subscribe to its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from redflow_server.domain.names import Limits, check_name, check_payload
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import check_idempotency_ttl

REPEATED_WITHIN_MS: Final = 10 * 60 * 1000
"""How long a repeat of an event without an idempotency key is known by its id."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be emitted; its subscribers start at `available_at_ms`, or at once. Waits see none for later."""

    event_id: str
    name: str
    payload: Payload
    idempotency_key: str = ""
    idempotency_ttl_ms: int = REPEATED_WITHIN_MS
    available_at_ms: int | None = None
    key: str | None = None
    """What waits for it have to name, too; None reaches those that name no key."""


@dataclass(frozen=True, slots=True)
class EmittedEvent:
    """Answer to an emit: the runs of the subscribers, also those that are still to be started."""

    event_id: str
    run_ids: tuple[str, ...]
    was_created: bool


def check_event(event: NewEvent, limits: Limits) -> None:
    """Raises InvalidInput or PayloadTooLarge when an event cannot be emitted."""
    check_name("event_name", event.name)
    if event.key:
        check_name("key", event.key)
    if event.idempotency_key:
        check_name("idempotency_key", event.idempotency_key)
    check_payload("payload", event.payload, limits.max_payload_bytes)
    check_idempotency_ttl(event.idempotency_ttl_ms)
