"""The messages of a session's stream, in either direction, each with everything that there is to say at a moment."""

from __future__ import annotations

from dataclasses import dataclass

from redflow_sdk._messages import Answer, Assignment, HeldLease, Item, Receipt, Resolution, SessionError, Stop
from redflow_sdk._opening import Opened, Opening


@dataclass(frozen=True, slots=True)
class Incoming:
    """One message of the gateway."""

    opened: Opened | None
    answered_beat: int
    stops: tuple[Stop, ...]
    lost: tuple[str, ...]
    answers: tuple[tuple[int, Answer], ...]
    resolutions: tuple[Resolution, ...]
    assignments: tuple[Assignment, ...]
    is_drained: bool
    reconnect_delay_s: float | None
    """How long to wait before going elsewhere, when the gateway goes away."""
    error: SessionError | None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message of the worker."""

    opening: Opening | None = None
    beat: int = 0
    held: tuple[HeldLease, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    items: tuple[tuple[int, Item], ...] = ()
    slot_limit: int | None = None
    drains: bool = False
    closes: bool = False
