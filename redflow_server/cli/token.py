"""`redflow token`: ending the waits of steps that gave out a completion token."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable
from typing import Final

from redflow_server.cli.arguments import add_output, add_verb, text
from redflow_server.cli.client import Connection, add_call, add_connection, with_client
from redflow_server.cli.codec_argument import add_codec
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.output import card, json_document, write
from redflow_server.cli.start_arguments import add_json, read_json

EXAMPLE_TOKEN: Final = "tok_run_qabb36vb7pudj2jndan3iv.YXBwcm92ZQ.kq3vX0mZr8TtQ2b"
# As `Client.fail_token` has it.
DEFAULT_TYPE: Final = "TokenFailed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    once = "Once: the same again is taken as a repeat, and anything else is refused."
    completed = add_verb(
        verbs,
        "complete",
        "complete the step that waits for a completion token",
        f"""redflow token complete {EXAMPLE_TOKEN} --output '{{"approved": true}}'""",
        about=f"Complete the step that waits for a completion token; the output is null by default.\n{once}",
    )
    _add_token(completed)
    add_json(completed, "output")
    add_codec(completed)
    add_connection(completed)
    add_output(completed, "-o")  # `--output` is the step's
    completed.set_defaults(command=with_client(_complete))
    failed = add_verb(
        verbs,
        "fail",
        "fail the step that waits for a completion token",
        f"redflow token fail {EXAMPLE_TOKEN} --message 'the invoice is not ours'",
        about=f"Fail the step that waits for a completion token.\n{once}",
    )
    _add_token(failed)
    failed.add_argument("--message", type=text, required=True, metavar="TEXT", help="why")
    failed.add_argument("--type", type=text, default=DEFAULT_TYPE, metavar="NAME", help="of the failure (%(default)s)")
    add_codec(failed)
    add_call(failed, _fail)


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", type=text, metavar="TOKEN", help="the token, as the run has given it out")


# ---- verbs ----


async def _complete(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    call = connection.client.complete_token(arguments.token, read_json(arguments))
    return await _end(connection, arguments, call, "succeeded")


async def _fail(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    call = connection.client.fail_token(arguments.token, arguments.message, type=arguments.type)
    return await _end(connection, arguments, call, "failed")


async def _end(
    connection: Connection, arguments: argparse.Namespace, call: Awaitable[None], step_status: str
) -> ExitCode:
    await connection.answer(call)
    # Not the token: whoever reads what a command has written need not have it.
    ended = {"step_status": step_status}
    write(json_document(ended) if arguments.output == "json" else card(ended))
    return ExitCode.OK
