"""What kinds of keys there are under a prefix, told by their names: the reverse of `keys.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from redflow_server.domain.states import TERMINAL, RunStatus
from redflow_server.store.keys import SOLO


@dataclass(frozen=True, slots=True)
class Kind:
    """What a key is by its name. Of a name that is made of counted parts, they have to add up."""

    name: str
    type: str
    pattern: re.Pattern[bytes]
    counted_parts: tuple[int, ...] = ()

    def match(self, name: bytes) -> bytes | None:
        """The variable part of a key's name behind the prefix; None when the key is of another kind."""
        found = self.pattern.fullmatch(name)
        if found is None or (
            self.counted_parts and _counted_parts(found[1].removeprefix(SOLO.encode())) not in self.counted_parts
        ):
            return None
        return found[1] if found.re.groups else b""


def _kind(name: str, type: str, pattern: str, counted_parts: tuple[int, ...] = ()) -> Kind:
    return Kind(name, type, re.compile(pattern.encode(), re.DOTALL), counted_parts)


_STATUSES: Final = "|".join(RunStatus)
_ENDS: Final = "|".join(sorted(TERMINAL))

KINDS: Final = (
    _kind("config", "hash", "config"),
    _kind("counter", "string", "run-seq|lane-seq|event-seq|event-bytes|events-dropped|reap:last|reap:not-before"),
    _kind("lanes", "zset", "lanes"),
    _kind("scheduled", "zset", "scheduled"),
    _kind("leases", "zset", "leases"),
    _kind("deadlines", "zset", "deadlines"),
    _kind("timers", "zset", "timers"),
    _kind("event_memory", "zset", "event-memory"),
    _kind("deliveries", "zset", "deliveries"),
    _kind("event_log", "stream", "event-log:(.*)", counted_parts=(1, 2)),
    _kind("event_waits", "zset", "event-waits:(.*)", counted_parts=(1, 2)),
    _kind("outbox", "zset", "outbox"),
    _kind("fan_outs", "zset", "fan-outs"),
    _kind("cron_times", "zset", "cron:(?:next|last)"),
    _kind("cron_def", "hash", "cron:def"),
    _kind("cron_skipped", "hash", "cron:skipped"),
    _kind("cron_problem", "hash", "cron:problem"),
    _kind("lane", "zset", "lane:(.*)", counted_parts=(2,)),
    _kind("status", "zset", f"runs:status:(?:{_STATUSES})"),
    _kind("workflow_status", "zset", f"workflow-runs:(?:{_STATUSES}):.+"),
    _kind("finished", "zset", f"finished:(?:{_ENDS})"),
    _kind("run", "hash", "run:([^:]+)"),
    _kind("data", "hash", "run:([^:]+):data"),
    _kind("steps", "hash", "run:([^:]+):steps"),
    _kind("waits", "hash", "run:([^:]+):waits"),
    _kind("awaiters", "set", "run:([^:]+):awaiters"),
    _kind("cursors", "hash", "run:([^:]+):cursors"),
    _kind("children", "set", "run:([^:]+):children"),
    _kind("emitted", "hash", "emitted:([^:]+)"),
    _kind("event_key", "string", "event-key:(.*)", counted_parts=(2,)),
    _kind("idempotency", "string", "idempotency:(.*)", counted_parts=(2,)),
    _kind("workflows", "set", "workflows"),
    _kind("workflow", "hash", "workflow:(.+)"),
    _kind("event_workflows", "set", "event:.+:workflows"),
    _kind("owner_workflows", "set", "owner:(.*):workflows", counted_parts=(1,)),
    _kind("owner_builds", "hash", "owner:(.*):builds", counted_parts=(1,)),
    _kind("sessions", "zset", "sessions"),
    _kind("session", "string", "session:.+"),
)


def kind_of(name: bytes) -> Kind | None:
    """The kind of a key by its name behind the prefix; None when no rule knows such a key."""
    return next((kind for kind in KINDS if kind.match(name) is not None), None)


def _counted_parts(raw: bytes) -> int | None:
    """How many counted parts, with colons between, the whole is made of; None when it is not."""
    parts = 0
    while True:
        size, colon, rest = raw.partition(b":")
        if not (colon and size.isdigit() and len(rest) >= int(size)):
            return None
        parts, raw = parts + 1, rest[int(size) :]
        if not raw:
            return parts
        if raw[:1] != b":":
            return None
        raw = raw[1:]
