"""Script calls as the commands that carry them: those of the same script share one, if it takes many (BATCH)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redflow_server.store.scripts import Script
from redflow_server.store.wire import Argument, Reply, pack

SCRIPT_ITEMS: Final = 64
SCRIPT_BYTES: Final = 1024 * 1024


@dataclass(slots=True, eq=False)
class Call:
    """A script call on its way."""

    script: Script
    run_id: str
    arguments: Sequence[Argument]
    read: Callable[[Reply], Any]  # Any: the type of the answer, which the future carries
    future: asyncio.Future[Any]  # Any: as above
    payload_bytes: int
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    """What goes over the wire: one call, or several of one script."""

    calls: list[Call]
    packed: bytes


@dataclass(slots=True, eq=False)
class Batch:
    """Commands under way."""

    commands: list[Command]
    runs: frozenset[str]


def grouped(batch: list[Call]) -> list[list[Call]]:
    """The calls of each script that takes many, as many together as it may get; every other call by itself. Those of a
    run keep their order, whatever their scripts.
    """
    groups: list[list[Call]] = []
    sizes: list[int] = []
    open_at: dict[str, int] = {}
    last_of_run: dict[str, int] = {}
    for call in batch:
        script, run_id = call.script, call.run_id
        at = open_at.get(script.name, -1)
        is_full = at < 0 or len(groups[at]) >= SCRIPT_ITEMS or sizes[at] + call.payload_bytes > SCRIPT_BYTES
        if is_full or (run_id and last_of_run.get(run_id, -1) > at):
            at = len(groups)
            groups.append([])
            sizes.append(0)
            if script.takes_many:
                open_at[script.name] = at
        groups[at].append(call)
        sizes[at] += call.payload_bytes
        if run_id:
            last_of_run[run_id] = at
    return groups


def packed(prefix: str, group: list[Call]) -> bytes:
    """What goes over the wire for calls of one script. Raises UnicodeError, TypeError, ValueError."""
    script = group[0].script
    if not script.takes_many:
        return pack("EVALSHA", script.sha, 1, prefix, *group[0].arguments)
    # The first argument of all items is the time.
    command: list[Argument] = ["EVALSHA", script.sha, 1, prefix, group[0].arguments[0]]
    for call in group:
        command.append(len(call.arguments) - 1)
        command += call.arguments[1:]
    return pack(*command)
