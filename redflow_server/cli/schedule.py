"""`redflow schedule`: the cron schedules in force, and when an expression comes."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Final

from redflow_sdk import Schedule
from redflow_server.cli import schedule_views
from redflow_server.cli.arguments import add_output, add_verb, moment, refused, text, whole
from redflow_server.cli.client import Connection, add_call
from redflow_server.cli.codec_argument import add_codec
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import json_document, write

YEARS: Final = (1970, 5000)
"""Those from which an expression's next hundred occurrences are known to be found."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    listed = add_verb(verbs, "list", "list the cron schedules in force", "redflow schedule list --workflow report")
    listed.add_argument("--workflow", type=text, metavar="WORKFLOW", help="only those of this workflow")
    add_codec(listed)
    add_call(listed, _list)
    shown = add_verb(verbs, "get", "show a cron schedule", "redflow schedule get cron_tavewl47k55ih4yqxtbjuh")
    shown.add_argument("schedule", type=text, metavar="ID", help="its id, or the one that its definition gives it")
    add_codec(shown)
    add_call(shown, _get)
    _add_next(
        add_verb(
            verbs,
            "next",
            "show when an expression comes next, without a gateway",
            "redflow schedule next '0 9 * * 1-5' --timezone Europe/Berlin --count 3",
        )
    )


def _add_next(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("expression", type=text, metavar="EXPRESSION", help="five fields, six, or an alias as @daily")
    parser.add_argument("--timezone", type=text, metavar="ZONE", default="UTC", help="an IANA name (%(default)s)")
    parser.add_argument("--count", type=whole(1, 100), metavar="N", default=5, help="how many (%(default)s)")
    parser.add_argument("--after", type=_after, metavar="TIME", help="an ISO 8601 time with an offset (default: now)")
    add_output(parser)
    parser.set_defaults(command=_next)


def _after(came: str) -> datetime:
    after = moment(came)
    if not YEARS[0] < after.year <= YEARS[1]:
        raise refused(f"must be a time after {YEARS[0]} and not after {YEARS[1]}", came)
    return after


# ---- verbs ----


async def _list(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    schedules = await connection.answer(connection.client.list_schedules(workflow=arguments.workflow))
    if arguments.workflow and not schedules:
        await connection.answer(connection.client.get_workflow(arguments.workflow))  # or it is not registered at all
    if arguments.output == "json":
        write(json_document({"schedules": list(map(schedule_views.schedule_document, schedules))}))
    else:
        write(schedule_views.schedules_table(schedules))
    return ExitCode.OK


async def _get(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    schedules = await connection.answer(connection.client.list_schedules())
    schedule = _found(schedules, arguments.schedule)
    if arguments.output == "json":
        write(json_document(schedule_views.schedule_document(schedule)))
    else:
        write(schedule_views.schedule_card(schedule))
    return ExitCode.OK


def _found(schedules: list[Schedule], named: str) -> Schedule:
    found = [schedule for schedule in schedules if schedule.id == named]
    found = found or [schedule for schedule in schedules if schedule.cron.id == named]
    if not found:
        raise CommandFailed(f"no schedule {named} is in force", ExitCode.NOT_FOUND)
    if len(found) > 1:  # of several workflows, within which they are unique
        ids = ", ".join(f"{schedule.id} ({schedule.workflow})" for schedule in found)
        raise CommandFailed(f"{len(found)} schedules are called {named}; give an id: {ids}")
    return found[0]


def _next(arguments: argparse.Namespace) -> ExitCode:
    # They need the extra, and the other verbs do not.
    from redflow_server.domain.cron import CronRule
    from redflow_server.domain.errors import InvalidInput

    try:
        rule = CronRule.parse(arguments.expression, arguments.timezone)
    except InvalidInput as refusal:
        where = "--timezone" if refusal.details["field"] == "cron.timezone" else "EXPRESSION"
        raise CommandFailed(
            f"{where} {refusal.details['rule']}; got {refusal.details['came']}", ExitCode.USAGE
        ) from refusal
    at_ms = int((arguments.after or datetime.now(UTC)).timestamp() * 1000)
    occurrences = []
    for _ in range(arguments.count):
        at_ms = rule.next_after(at_ms)
        occurrences.append(datetime.fromtimestamp(at_ms / 1000, UTC))
    if arguments.output == "json":
        write(json_document(schedule_views.occurrences_document(rule.expression, rule.timezone, occurrences)))
    else:
        write(schedule_views.occurrences_table(rule.timezone, occurrences))
    return ExitCode.OK
