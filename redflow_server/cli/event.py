"""`redflow event`: telling workflows and runs of what has happened, and waiting for the runs that it starts."""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import Sequence
from typing import Final

from redflow_sdk import CanceledError, Run, RunFailedError, RunNotFoundError
from redflow_server.cli import run_views
from redflow_server.cli.arguments import add_verb, text
from redflow_server.cli.client import Connection, add_call
from redflow_server.cli.codec_argument import add_codec
from redflow_server.cli.escaping import shortened
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import json_document, say, table, write
from redflow_server.cli.start_arguments import (
    add_begin,
    add_idempotency,
    add_json,
    add_wait,
    begin_of,
    check_together,
    read_json,
)

LOOK_AGAIN_S: Final = 0.2
"""A run of an event with very many subscribers has its id before it is there."""
IDS_COLUMNS: Final = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    about = (
        "Emit an event: a run of every workflow that subscribes to it is started, with the payload as its input,\n"
        "which is null by default. Prints the ids of these runs. Runs that wait for it, with this key or without\n"
        "one, go on."
    )
    example = """redflow event emit order.paid --payload '{"id": "A-17"}' --key A-17"""
    emitted = add_verb(verbs, "emit", "emit an event, which starts runs and ends waits", example, about=about)
    emitted.add_argument("event", type=text, metavar="NAME", help="what workflows subscribe to, and runs wait for")
    add_json(emitted, "payload")
    emitted.add_argument("--key", type=text, help="which of the waits for the event end (default: those without a key)")
    add_idempotency(emitted, "all emits of the event with it are one")
    add_begin(emitted)
    add_wait(emitted, "wait for the ends of all its runs and show them")
    add_codec(emitted)
    add_call(emitted, _emit)


async def _emit(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    check_together(arguments)
    client, event, at = connection.client, arguments.event, begin_of(arguments)
    if at is not None and arguments.key is not None:
        raise CommandFailed("--key goes with neither --at nor --delay: waits hear of no such event", ExitCode.USAGE)
    payload, key, ttl_s = read_json(arguments), arguments.idempotency_key, arguments.idempotency_ttl
    emit = (
        client.emit_event(event, payload, key=arguments.key, idempotency_key=key, idempotency_ttl=ttl_s)
        if at is None
        else client.schedule_event(event, payload, available_at=at, idempotency_key=key, idempotency_ttl=ttl_s)
    )
    run_ids = await connection.answer(emit)
    if not run_ids:
        which = "" if arguments.key is None else " with this key"
        say(f"no workflow subscribes to {event}: no run was started; those that wait for it{which} go on")
    if arguments.wait:
        return await _show_ends(connection, arguments, run_ids)
    if arguments.output == "json":
        write(json_document({"event": arguments.event, "run_ids": run_ids}))
    else:
        write(table(("id",), [(run_id,) for run_id in run_ids]))
    return ExitCode.OK


async def _show_ends(connection: Connection, arguments: argparse.Namespace, run_ids: Sequence[str]) -> ExitCode:
    if run_ids:
        say(shortened(f"waiting for {_count(run_ids)}: {', '.join(run_ids)}", IDS_COLUMNS))
    timeout_s: float | None = arguments.timeout
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    # One after the other: the last end comes no sooner otherwise.
    runs = [await _end_of(connection, run_id, deadline) for run_id in run_ids]
    if arguments.output == "json":
        shown = list(map(run_views.run_document, runs))
        write(json_document({"event": arguments.event, "run_ids": run_ids, "runs": shown}))
    else:
        write(run_views.ends_table(runs))
    ended = ("succeeded", "failed", "canceled")
    for code, what, found in (
        (ExitCode.RUN_FAILED, "failed", [run for run in runs if run.status == "failed"]),
        (ExitCode.TIMED_OUT, f"not ended within {timeout_s} s", [run for run in runs if run.status not in ended]),
        (ExitCode.RUN_CANCELED, "ended as canceled", [run for run in runs if run.status == "canceled"]),
    ):
        if found:
            has = "has" if len(found) == 1 else "have"
            ids = ", ".join(run.id for run in found)
            raise CommandFailed(shortened(f"{len(found)} of {_count(runs)} {has} {what}: {ids}", IDS_COLUMNS), code)
    return ExitCode.OK


async def _end_of(connection: Connection, run_id: str, deadline: float) -> Run:
    """The run when it has ended, or as it is at the deadline. Raises RunNotFoundError, UnavailableError."""
    there_by = time.monotonic() + connection.call_timeout_s
    handle = connection.client.handle(run_id)
    while True:
        try:
            await handle.result(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))
        except RunNotFoundError:
            if time.monotonic() >= there_by:
                raise
            await asyncio.sleep(LOOK_AGAIN_S)
            continue
        except (RunFailedError, CanceledError, TimeoutError):
            pass
        return await connection.answer(handle.get())


def _count(runs: Sequence[object]) -> str:
    return f"{len(runs)} run" if len(runs) == 1 else f"{len(runs)} runs"
