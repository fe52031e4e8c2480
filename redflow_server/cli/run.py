"""`redflow run`: starting, watching and canceling runs, through a gateway."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, get_args

from redflow_sdk import CanceledError, RunFailedError, RunHandle
from redflow_sdk.records import RunStatus
from redflow_server.cli import run_views
from redflow_server.cli.arguments import add_output, json_value, moment, seconds, text, whole
from redflow_server.cli.client import ClientCommand, Connection, add_connection, with_client
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import card, json_document, say, write

CENTURY_S: Final = 100 * 365.25 * 86400
# Beyond the time-out, for the answer that tells of it to come.
ANSWER_MARGIN_S: Final = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_start(verbs.add_parser("start", help="start a run", description="Start a run; its input is null by default."))
    for verb, command, summary in (
        ("get", _get, "show a run"),
        ("steps", _steps, "show the steps of a run"),
        ("result", _result, "wait for the end of a run and print its output as JSON"),
        ("cancel", _cancel, "ask for a run to end as canceled"),
    ):
        of_verb = verbs.add_parser(verb, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        of_verb.add_argument("id", type=text, metavar="ID", help="the run")
        if verb == "result":
            _add_timeout(of_verb)
        if verb == "cancel":
            of_verb.add_argument("--reason", type=text, help="why, for the record")
        _finish(of_verb, command)
    _add_list(verbs.add_parser("list", help="list runs", description="List runs, newest first."))


def _finish(parser: argparse.ArgumentParser, command: ClientCommand) -> None:
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(command=with_client(command))


def _add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=seconds(0, CENTURY_S),
        metavar="SECONDS",
        help=f"how long to wait at most; then the exit code is {ExitCode.TIMED_OUT} (default: for ever)",
    )


def _add_start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workflow", type=text, metavar="WORKFLOW", help="the name of a registered workflow")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--input", type=json_value, metavar="JSON", help="the input")
    given.add_argument("--input-file", type=Path, metavar="FILE", help="a file with the input as JSON")
    given.add_argument("-", dest="reads_stdin", action="store_true", help="read the input from stdin")
    parser.add_argument("--key", type=text, help="an idempotency key: one run of all starts with it")
    parser.add_argument(
        "--key-ttl", type=seconds(0.001, CENTURY_S), metavar="SECONDS", help="how long the key holds (default: 7 days)"
    )
    parser.add_argument("--queue", type=text, help="instead of the workflow's; the workflow may then be unknown yet")
    parser.add_argument("--priority", type=whole(-1000, 1000), default=0, metavar="N", help="-1000 to 1000, 0")
    parser.add_argument(
        "--max-attempts", type=whole(1, 1_000_000), metavar="N", help="attempts in all, instead of the workflow's"
    )
    begins = parser.add_mutually_exclusive_group()
    begins.add_argument("--at", type=moment, metavar="TIME", help="not before this ISO 8601 time with an offset")
    begins.add_argument("--delay", type=seconds(0, CENTURY_S), metavar="SECONDS", help="not before so long from now")
    parser.add_argument("--wait", action="store_true", help="wait for the end and print the output as JSON")
    _add_timeout(parser)
    _finish(parser, _start)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workflow", type=text, metavar="WORKFLOW", help="only runs of this workflow")
    parser.add_argument("--status", choices=get_args(RunStatus), help="only runs in this status")
    parser.add_argument("--limit", type=whole(1, 500), default=50, metavar="N", help="at most so many (%(default)s)")
    parser.add_argument("--offset", type=whole(0, 10_000), default=0, metavar="N", help="after the first so many")
    _finish(parser, _list)


# ---- verbs ----


async def _start(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    for given, needed in (("key_ttl", "key"), ("timeout", "wait")):
        if getattr(arguments, given) is not None and not getattr(arguments, needed):
            raise CommandFailed(f"--{given.replace('_', '-')} goes with --{needed} only", ExitCode.USAGE)
    available_at = arguments.at
    if arguments.delay is not None:
        available_at = datetime.now(UTC) + timedelta(seconds=arguments.delay)
    start = connection.client.start(
        arguments.workflow,
        _input(arguments),
        idempotency_key=arguments.key,
        idempotency_ttl=arguments.key_ttl,
        available_at=available_at,
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


def _input(arguments: argparse.Namespace) -> Any:  # Any: JSON
    if arguments.input_file is None and not arguments.reads_stdin:
        return arguments.input
    place = "stdin" if arguments.reads_stdin else f"--input-file {arguments.input_file}"
    try:
        document = sys.stdin.buffer.read() if arguments.reads_stdin else arguments.input_file.read_bytes()
        return json_value(document.decode())
    except OSError as error:
        raise CommandFailed(f"{place} cannot be read: {error.strerror}", ExitCode.USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{place} must be UTF-8: {error}", ExitCode.USAGE) from error
    except argparse.ArgumentTypeError as error:
        raise CommandFailed(f"{place} {error}", ExitCode.USAGE) from error


async def _get(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    run = await connection.answer(connection.client.get_run(arguments.id))
    write(json_document(run_views.run_document(run)) if arguments.output == "json" else run_views.run_card(run))
    return ExitCode.OK


async def _steps(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    steps = await connection.answer(connection.client.get_run_steps(arguments.id))
    if arguments.output == "json":
        write(json_document({"steps": list(map(run_views.step_document, steps))}))
    else:
        write(run_views.steps_table(steps))
    return ExitCode.OK


async def _list(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
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
    handle: RunHandle[Any],  # Any: JSON
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
