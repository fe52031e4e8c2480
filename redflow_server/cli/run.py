"""`redflow run`: starting, watching and canceling runs, through a gateway."""

from __future__ import annotations

import argparse
import asyncio
from typing import Final, get_args

from redflow_sdk import CanceledError, JsonValue, RunFailedError, RunHandle
from redflow_sdk.records import RunStatus
from redflow_server.cli import run_views
from redflow_server.cli.arguments import add_verb, text, whole
from redflow_server.cli.client import Connection, add_call
from redflow_server.cli.codec_argument import add_codec
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import card, json_document, say, write
from redflow_server.cli.run_waiting import list_waiting
from redflow_server.cli.run_watch import watch
from redflow_server.cli.start_arguments import (
    add_begin,
    add_idempotency,
    add_json,
    add_timeout,
    add_wait,
    begin_of,
    check_together,
    read_json,
)

EXAMPLE_RUN: Final = "run_qabb36vb7pudj2jndan3iv"
# Beyond the time-out, for the answer that tells of it to come.
ANSWER_MARGIN_S: Final = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_start(
        add_verb(
            verbs,
            "start",
            "start a run",
            """redflow run start order --input '{"id": "A-17"}' --wait""",
            about="Start a run; its input is null by default.",
        )
    )
    for verb, command, summary, options in (
        ("get", _get, "show a run", ""),
        ("steps", _steps, "show the steps of a run", ""),
        ("watch", watch, "show the changes of a run and its steps until it ends", " -o json"),
        ("result", _result, "wait for the end of a run and print its output as JSON", " --timeout 60"),
        ("cancel", _cancel, "ask for a run to end as canceled", " --reason 'customer left'"),
    ):
        of_verb = add_verb(verbs, verb, summary, f"redflow run {verb} {EXAMPLE_RUN}{options}")
        of_verb.add_argument("id", type=text, metavar="ID", help="the run")
        if verb in ("watch", "result"):
            add_timeout(of_verb)
        if verb == "cancel":
            of_verb.add_argument("--reason", type=text, help="why, for the record")
        else:
            add_codec(of_verb)
        add_call(of_verb, command)
    example = "redflow run list --workflow order --status failed"
    _add_list(add_verb(verbs, "list", "list runs", example, about="List runs, newest first."))


def _add_start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workflow", type=text, metavar="WORKFLOW", help="the name of a registered workflow")
    add_json(parser, "input")
    add_idempotency(parser, "one run of all starts with it")
    parser.add_argument("--queue", type=text, help="instead of the workflow's; the workflow may then be unknown yet")
    parser.add_argument("--priority", type=whole(-1000, 1000), default=0, metavar="N", help="-1000 to 1000, 0")
    parser.add_argument(
        "--max-attempts", type=whole(1, 1_000_000), metavar="N", help="attempts in all, instead of the workflow's"
    )
    add_begin(parser)
    add_wait(parser, "wait for the end and print the output as JSON")
    add_codec(parser)
    add_call(parser, _start)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workflow", type=text, metavar="WORKFLOW", help="only runs of this workflow")
    parser.add_argument("--status", choices=get_args(RunStatus), help="only runs in this status")
    parser.add_argument("--waiting", action="store_true", help="only open runs that wait, each with what it waits for")
    parser.add_argument(
        "--limit", type=whole(1, 500), default=50, metavar="N", help="at most so many, 1 to 500 (%(default)s)"
    )
    parser.add_argument("--offset", type=whole(0, 10_000), default=0, metavar="N", help="after the first so many")
    add_codec(parser)
    add_call(parser, _list)


# ---- verbs ----


async def _start(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    check_together(arguments)
    start = connection.client.start(
        arguments.workflow,
        read_json(arguments),
        idempotency_key=arguments.idempotency_key,
        idempotency_ttl=arguments.idempotency_ttl,
        available_at=begin_of(arguments),
        queue=arguments.queue,
        priority=arguments.priority,
        max_attempts=arguments.max_attempts,
    )
    handle = await connection.answer(start)
    if arguments.wait:
        say(f"started run {handle.id}" if handle.created else f"run {handle.id} has the key already")
        return await _print_output(connection, handle, arguments)
    started = {
        "id": handle.id,
        "workflow": arguments.workflow,
        "created": handle.created,
        "input_differs": handle.input_differs,
    }
    write(json_document(started) if arguments.output == "json" else card(started))
    return ExitCode.OK


async def _get(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    run = await connection.answer(connection.client.get_run(arguments.id))
    write(json_document(run_views.run_document(run)) if arguments.output == "json" else run_views.run_card(run))
    return ExitCode.OK


async def _steps(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    steps = await connection.answer(connection.client.get_run_steps(arguments.id))
    if arguments.output == "json":
        write(json_document({"steps": list(map(run_views.step_document, steps))}))
    else:
        is_waiting = any(step.status == "waiting" for step in steps)
        run = await connection.answer(connection.client.get_run(arguments.id)) if is_waiting else None
        write(run_views.steps_table(steps, run.waiting_for if run else ()))
    return ExitCode.OK


async def _list(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    if arguments.waiting:
        return await list_waiting(connection, arguments)
    runs = connection.client.list_runs(workflow=arguments.workflow, status=arguments.status)
    page = await connection.answer(runs.page(arguments.limit, arguments.offset))
    if arguments.output == "json":
        write(json_document({"runs": list(map(run_views.listed_document, page))}))
    else:
        write(run_views.runs_table(page))
    return ExitCode.OK


async def _result(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    # The SDK waits through an outage however long; whether there is such a run has to be known at once.
    await connection.answer(connection.client.get_run(arguments.id))
    return await _print_output(connection, connection.client.handle(arguments.id), arguments)


async def _print_output(
    connection: Connection,
    handle: RunHandle[JsonValue],
    arguments: argparse.Namespace,
) -> ExitCode:
    timeout_s: float | None = arguments.timeout
    try:
        async with asyncio.timeout(None if timeout_s is None else timeout_s + ANSWER_MARGIN_S):
            output = await handle.result(timeout_s)
    except TimeoutError:
        raise CommandFailed(f"run {handle.id} has not ended within {timeout_s:g} s", ExitCode.TIMED_OUT) from None
    except (RunFailedError, CanceledError):
        # There is no output; the run says why in a form that programs read.
        if arguments.output == "json":
            write(json_document(run_views.run_document(await connection.answer(handle.get()))))
        raise
    write(json_document(output))
    return ExitCode.OK


async def _cancel(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    is_accepted = await connection.answer(connection.client.cancel_run(arguments.id, reason=arguments.reason or ""))
    run = await connection.answer(connection.client.get_run(arguments.id))
    if not is_accepted:
        raise CommandFailed(f"run {run.id} has ended before: it is {run.status}")
    canceled = {"id": run.id, "status": run.status, "cancel_requested_at": run.cancel_requested_at}
    write(json_document(canceled) if arguments.output == "json" else card(canceled))
    return ExitCode.OK
