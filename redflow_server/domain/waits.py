"""Waits: steps that end by something that happens elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from redflow_server.domain.ids import counted
from redflow_server.domain.runs import NewRun
from redflow_server.domain.states import StepKind


@dataclass(frozen=True, slots=True)
class TimerWait:
    """A wait for a time, by Redis' clock; `until_ms` None leaves it to the time-out."""

    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class EventWait:
    """A wait for an event of this name, with exactly this key, or without one."""

    name: str
    key: str | None

    @property
    def channel(self) -> str:
        """What events and the waits for them meet on."""
        return event_channel(self.name, self.key)


@dataclass(frozen=True, slots=True)
class ChildWait:
    """A wait for the end of a run, which is started if it does not exist."""

    start: NewRun


@dataclass(frozen=True, slots=True)
class TokenWait:
    """A wait for somebody to complete a token."""

    token: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A step that waits, for at most `timeout_ms` from its first registration on. Of the waits with one `group`, which
    is not empty, the first to end withdraws the others.
    """

    name: str
    seq: int
    target: TimerWait | EventWait | ChildWait | TokenWait
    group: str = ""
    timeout_ms: int | None = None

    @property
    def kind(self) -> StepKind:
        """The kind of its step."""
        return KIND_OF[type(self.target)]


KIND_OF = {
    TimerWait: StepKind.TIMER,
    EventWait: StepKind.EVENT,
    ChildWait: StepKind.CHILD,
    TokenWait: StepKind.TOKEN,
}


def event_channel(name: str, key: str | None) -> str:
    """The channel of events of a name with a key, or without one."""
    return counted(name) if key is None else f"{counted(name)}:{counted(key)}"
