"""`redflow worker list|get`: the workers that are connected to any gateway."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

from redflow_sdk import WorkerInfo
from redflow_server.cli.client import Connection
from redflow_server.cli.escaping import shortened
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import card, json_document, say, table, write

LISTED_AT_MOST: Final = 1000
"""Workers that a gateway lists."""
NAMES_COLUMNS: Final = 30


async def list_workers(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    """All of them."""
    workers = await connection.answer(connection.client.list_workers())
    if arguments.output == "json":
        write(json_document({"workers": list(map(worker_document, workers))}))
    else:
        write(workers_table(workers))
    say_if_cut(workers)
    return ExitCode.OK


async def get_worker(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    """One of them, by id or name. Raises CommandFailed."""
    workers = await connection.answer(connection.client.list_workers())
    found = [worker for worker in workers if arguments.worker in (worker.id, worker.session_id)]
    found = found or [worker for worker in workers if worker.name == arguments.worker]
    if not found:
        raise CommandFailed(f"no worker {arguments.worker} is connected", ExitCode.NOT_FOUND)
    # While it moves to another gateway it has two sessions.
    if len({worker.id for worker in found}) > 1:
        ids = ", ".join(sorted({worker.id for worker in found}))
        raise CommandFailed(f"{len(found)} workers are called {arguments.worker}; give an id: {ids}")
    worker = max(found, key=lambda worker: worker.connected_at)
    write(json_document(worker_document(worker)) if arguments.output == "json" else _card(worker))
    return ExitCode.OK


def say_if_cut(workers: Sequence[WorkerInfo]) -> None:
    """Tells on stderr that there may be more workers than these."""
    if len(workers) >= LISTED_AT_MOST:
        say(f"a gateway lists {LISTED_AT_MOST} workers at most; there may be more")


def worker_document(worker: WorkerInfo) -> dict[str, object]:
    """A worker. The names of the fields are a promise."""
    return {
        "id": worker.id,
        "name": worker.name,
        "owner": worker.owner,
        "build_id": worker.build_id,
        "sdk": {"name": worker.sdk_name, "version": worker.sdk_version, "language": worker.language},
        "gateway_id": worker.gateway_id,
        "session_id": worker.session_id,
        "queues": worker.queues,
        "workflows": worker.workflows,
        "slot_limit": worker.slot_limit,
        "leases": worker.leases,
        "parked": worker.parked,
        "free_slots": worker.free_slots,
        "is_draining": worker.is_draining,
        "connected_at": worker.connected_at,
    }


def workers_table(workers: Iterable[WorkerInfo]) -> str:
    """Workers, a line for each."""
    rows = (
        (
            *(worker.id, worker.name, worker.owner, _sdk(worker), _short(worker.queues), _short(worker.workflows)),
            *(_slots(worker), worker.connected_at, worker.gateway_id),
        )
        for worker in workers
    )
    header = ("id", "name", "owner", "sdk", "queues", "workflows", "slots", "connected", "gateway")
    return table(header, rows)


def names_of(workers: Iterable[WorkerInfo]) -> str:
    """Who they are, on one line."""
    return ", ".join(f"{worker.name} (draining)" if worker.is_draining else worker.name for worker in workers)


def _card(worker: WorkerInfo) -> str:
    fields: dict[str, object] = {
        **worker_document(worker),
        "sdk": _sdk(worker),
        "queues": ", ".join(worker.queues),
        "workflows": ", ".join(worker.workflows),
        "slots": _slots(worker),
    }
    for name in ("slot_limit", "leases", "parked", "free_slots", "is_draining"):
        del fields[name]
    return card(fields)


def _sdk(worker: WorkerInfo) -> str:
    return " ".join(part for part in (worker.sdk_name, worker.sdk_version) if part)


def _short(names: Iterable[str]) -> str:
    return shortened(", ".join(names), NAMES_COLUMNS)


def _slots(worker: WorkerInfo) -> str:
    """Slots in use, and the runs that it holds beside them."""
    parked = f" +{worker.parked} parked" if worker.parked else ""
    return f"{worker.leases - worker.parked}/{worker.slot_limit}{parked}" + (" draining" if worker.is_draining else "")
