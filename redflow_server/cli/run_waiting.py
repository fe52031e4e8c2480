"""`redflow run list --waiting`: the open runs that do not move, and what each of them waits for."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from redflow_sdk import Run, RunNotFoundError
from redflow_sdk.records import RunStatus
from redflow_server.cli.client import Connection
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import json_document, write
from redflow_server.cli.run_views import failure_document, listed_document
from redflow_server.cli.wait_views import waiting_table

OPEN: Final[tuple[RunStatus, ...]] = ("scheduled", "queued", "running", "waiting")
READ_AT_ONCE: Final = 16


async def list_waiting(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    """Prints a page of them. Raises CommandFailed."""
    if arguments.status not in (None, *OPEN):
        raise CommandFailed(f"--waiting: a run that is {arguments.status} waits for nothing", ExitCode.USAGE)
    statuses = OPEN if arguments.status is None else (arguments.status,)
    listed = _open_runs(connection, arguments.workflow, statuses)
    runs = await _explained(connection, await _page(listed, arguments.limit, arguments.offset))
    if arguments.output == "json":
        documents = [{**listed_document(run), "failure": failure_document(run.failure)} for run in runs]
        write(json_document({"runs": documents}))
    else:
        write(waiting_table(runs))
    return ExitCode.OK


async def _page(listed: AsyncIterator[Run], limit: int, offset: int) -> list[Run]:
    """Those of the runs that wait."""
    page: list[Run] = []
    async for run in listed:
        if run.status == "running" and not run.open_waits:
            continue
        if offset > 0:
            offset -= 1
            continue
        page.append(run)
        if len(page) == limit:
            break
    return page


async def _open_runs(connection: Connection, workflow: str | None, statuses: Sequence[RunStatus]) -> AsyncIterator[Run]:
    """The runs of some statuses, newest first. One that changes meanwhile comes once, or not at all."""
    lists = [aiter(connection.client.list_runs(workflow=workflow, status=status)) for status in statuses]
    heads = [(run, listed) for listed in lists if (run := await connection.answer(anext(listed, None)))]
    seen: set[str] = set()
    while heads:
        newest = max(heads, key=lambda head: head[0].created_at)
        heads.remove(newest)
        run, listed = newest
        if run.id not in seen:
            seen.add(run.id)
            yield run
        if following := await connection.answer(anext(listed, None)):
            heads.append((following, listed))


async def _explained(connection: Connection, runs: Sequence[Run]) -> list[Run]:
    """The runs with what they wait for, which listings leave out, without those that do not wait any more."""
    room = asyncio.Semaphore(READ_AT_ONCE)

    async def read(run: Run) -> Run | None:
        async with room:
            try:
                return await connection.answer(connection.client.get_run(run.id))
            except RunNotFoundError:
                return None

    found = await asyncio.gather(*map(read, runs))
    return [run for run in found if run is not None and run.status in OPEN and run.waiting_for]
