"""Events as clients emit them."""

from __future__ import annotations

import asyncio

from redflow_server.domain.events import EmittedEvent, NewEvent, check_event
from redflow_server.domain.ids import event_id_for, new_event_id
from redflow_server.domain.names import Limits, check_name
from redflow_server.store.store import Store


class Events:
    """What is told to all workflows that subscribe to it."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    def emit(self, event: NewEvent) -> asyncio.Future[EmittedEvent]:
        """Starts the runs of the event's subscribers, or answers those of the event that its id or key names.

        Raises InvalidInput, PayloadTooLarge, StoreFull.
        """
        check_event(event, self._limits)
        return self._store.emit_event(event)


def event_id_of_request(request_id: str) -> str:
    """The id of the event that a call emits: a function of its request id, so that a repeat emits none."""
    if not request_id:
        return new_event_id()
    return event_id_for("request", check_name("request_id", request_id))
