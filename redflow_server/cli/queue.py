"""`redflow queue`: what waits in queues, and who serves them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Final

from redflow_server.cli.arguments import add_verb, text
from redflow_server.cli.client import Connection, add_call
from redflow_server.cli.escaping import shortened
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.lanes import Lane, Queue, overview
from redflow_server.cli.output import card, json_document, table, write
from redflow_server.cli.worker_views import names_of, workers_table

SERVED_BY_COLUMNS: Final = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    about = "List queues with the runs of each workflow that wait in them, and the workers that serve these."
    add_call(add_verb(verbs, "list", "list queues and what waits in them", "redflow queue list", about=about), _list)
    shown = add_verb(verbs, "get", "show a queue and its workers", "redflow queue get mail")
    shown.add_argument("queue", type=text, metavar="QUEUE", help="its name")
    add_call(shown, _get)


async def _list(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    seen = await overview(connection)
    queues = seen.queues()
    if arguments.output == "json":
        write(json_document({"queues": [queue.document() for queue in queues], "lanes_left_out": seen.left_out}))
    else:
        write(table(("queue", "workflow", "queued", "free_slots", "served_by"), _rows(queues)))
    seen.say_what_is_missing()
    return ExitCode.OK


async def _get(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    seen = await overview(connection)
    queue = next((queue for queue in seen.queues() if queue.name == arguments.queue), None)
    if queue is None:
        seen.say_what_is_missing()
        what = "no workflow is registered for it, no run waits in it and no worker serves it"
        raise CommandFailed(f"there is no queue {arguments.queue}: {what}", ExitCode.NOT_FOUND)
    write(json_document(queue.document()) if arguments.output == "json" else _shown(queue))
    seen.say_what_is_missing()
    return ExitCode.OK


def _rows(queues: Iterable[Queue]) -> Iterable[tuple[object, ...]]:
    for queue in queues:
        yield from map(_row, queue.lanes)
        if not queue.lanes:
            yield queue.name, None, 0, queue.free_slots, shortened(names_of(queue.workers), SERVED_BY_COLUMNS)


def _row(lane: Lane) -> tuple[object, ...]:
    served_by = shortened(lane.served_by, SERVED_BY_COLUMNS)
    return lane.queue, lane.workflow, lane.depth, lane.free_slots if lane.workers else None, served_by


def _shown(queue: Queue) -> str:
    slots = sum(worker.slot_limit for worker in queue.workers)
    fields = {
        "queue": queue.name,
        "queued": queue.depth,
        "free_slots": f"{queue.free_slots} of {slots}",
    }
    rows = [_row(lane)[1:] for lane in queue.lanes]
    parts = [card(fields), table(("workflow", "queued", "free_slots", "served_by"), rows)]
    if queue.workers:
        parts.append(workers_table(queue.workers))
    return "\n\n".join(parts)
