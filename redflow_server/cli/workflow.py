"""`redflow workflow`: the workflows that are registered, and what their definitions say."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable

from redflow_sdk import RetryPolicy, WorkflowInfo
from redflow_server.cli.arguments import add_verb, text
from redflow_server.cli.client import Connection, add_call
from redflow_server.cli.codec_argument import add_codec
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.lanes import Lane, overview
from redflow_server.cli.output import card, json_document, table, write
from redflow_server.cli.schedule_views import cron_document, cron_words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    listed = add_verb(verbs, "list", "list the registered workflows", "redflow workflow list")
    add_codec(listed)
    add_call(listed, _list)
    shown = add_verb(
        verbs, "get", "show the definition of a workflow, and where it waits", "redflow workflow get order"
    )
    shown.add_argument("workflow", type=text, metavar="WORKFLOW", help="its name")
    add_codec(shown)
    add_call(shown, _get)


async def _list(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    workflows = await connection.answer(connection.client.list_workflows())
    if arguments.output == "json":
        write(json_document({"workflows": list(map(_document, workflows))}))
    else:
        write(_table(workflows))
    return ExitCode.OK


async def _get(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    workflow = await connection.answer(connection.client.get_workflow(arguments.workflow))
    seen = await overview(connection)
    lanes = [lane for lane in seen.lanes() if lane.workflow == workflow.name]
    if arguments.output == "json":
        write(json_document({**_document(workflow), "lanes": [lane.document() for lane in lanes]}))
    else:
        write(_card(workflow, lanes))
    seen.say_what_is_missing()
    return ExitCode.OK


def _document(workflow: WorkflowInfo) -> dict[str, object]:
    """A workflow. The names of the fields are a promise."""
    return {
        "name": workflow.name,
        "queue": workflow.queue,
        "max_attempts": workflow.max_attempts,
        "retry": _retry_document(workflow.retry),
        "run_timeout": workflow.run_timeout,
        "start_timeout": workflow.start_timeout,
        "failure_handler_timeout": workflow.failure_handler_timeout,
        "has_failure_handler": workflow.has_failure_handler,
        "cron": list(map(cron_document, workflow.cron)),
        "events": workflow.events,
        "input_schema": workflow.input_schema,
        "owner": workflow.owner,
        "build_id": workflow.build_id,
        "digest": workflow.digest,
        "updated_at": workflow.updated_at,
    }


def _retry_document(retry: RetryPolicy | None) -> dict[str, float] | None:
    if retry is None:
        return None
    return {
        "initial": retry.initial,
        "multiplier": retry.multiplier,
        "maximum": retry.maximum,
        "jitter": retry.jitter,
    }


def _table(workflows: Iterable[WorkflowInfo]) -> str:
    rows = (
        (
            *(workflow.name, workflow.queue, workflow.max_attempts, len(workflow.cron), len(workflow.events)),
            *(workflow.owner, workflow.build_id, workflow.updated_at),
        )
        for workflow in workflows
    )
    return table(("name", "queue", "attempts", "crons", "events", "owner", "build", "in_use_at"), rows)


def _card(workflow: WorkflowInfo, lanes: Iterable[Lane]) -> str:
    """A workflow, without what it does not have."""
    fields: dict[str, object] = {
        "name": workflow.name,
        "queue": workflow.queue,
        "max_attempts": workflow.max_attempts,
        "retry": _retry(workflow.retry) if workflow.max_attempts > 1 else None,
        "run_timeout": _seconds(workflow.run_timeout),
        "start_timeout": _seconds(workflow.start_timeout),
        "failure_handler": "yes" if workflow.has_failure_handler else None,
        "failure_handler_timeout": _seconds(workflow.failure_handler_timeout),
        "cron": "; ".join(map(cron_words, workflow.cron)),
        "events": ", ".join(workflow.events),
        "input_schema": json.dumps(workflow.input_schema, ensure_ascii=False) if workflow.input_schema else None,
        "owner": workflow.owner,
        "build_id": workflow.build_id,
        "in_use_at": workflow.updated_at,
    }
    rows = [(lane.queue, lane.depth, lane.free_slots if lane.workers else None, lane.served_by) for lane in lanes]
    shown = card({name: value for name, value in fields.items() if value not in (None, "")})
    return f"{shown}\n\n{table(('queue', 'queued', 'free_slots', 'served_by'), rows)}"


def _retry(retry: RetryPolicy | None) -> str:
    if retry is None:
        return "after 0.25 s, times 2, at most 30 s, plus up to 0.1 s"
    times, most = f"times {retry.multiplier:g}", f"at most {retry.maximum:g} s"
    return f"after {retry.initial:g} s, {times}, {most}, plus up to {retry.jitter:.0%} of it"


def _seconds(length: float | None) -> str | None:
    return None if length is None else f"{length:.12g} s"
