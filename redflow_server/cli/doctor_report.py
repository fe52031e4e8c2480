"""What `redflow doctor` finds out, and how it shows it."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import card, json_document, table, write
from redflow_server.cli.redis_faults import redis_fault
from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.runs import LaneDepth
from redflow_server.store.admin import Admin, RedisReport
from redflow_server.store.invariants import Violation, check
from redflow_server.store.keys import Keys
from redflow_server.store.unserved import unserved_lanes
from redflow_server.store.wire import Dial


def examine(arguments: argparse.Namespace) -> ExitCode:
    """Looks, and prints what there is. Raises CommandFailed."""
    try:
        seen = asyncio.run(_examine(arguments.redis, Keys(arguments.prefix)))
    except StoreUnavailable as error:
        fault = redis_fault(error, "doctor")
        if fault.code is ExitCode.REFUSED:
            raise CommandFailed(f"{fault}; give it an administrator's user", fault.code) from error
        raise fault from error
    write(_document(seen) if arguments.output == "json" else _tables(seen))
    # Lanes without a worker are no fault: it may be on its way.
    is_fit = not any(problem.is_fatal for problem in seen.report.problems)
    return ExitCode.OK if is_fit and not seen.findings else ExitCode.REFUSED


@dataclass(frozen=True, slots=True)
class _Seen:
    report: RedisReport
    findings: list[Violation]
    unserved: tuple[LaneDepth, ...]


async def _examine(url: str, keys: Keys) -> _Seen:
    dial = Dial(url)
    try:
        report = await Admin(dial, keys).inspect(accepts_eviction=False)
        async with dial.client() as client:
            return _Seen(report, await check(client, keys), await unserved_lanes(client, keys))
    finally:
        await dial.close()


def _tables(seen: _Seen) -> str:
    report, findings = seen.report, seen.findings
    limit = f"{report.max_memory_bytes} bytes" if report.max_memory_bytes else "no limit"
    settings = {
        "server": f"{report.name} {report.version}",
        "persistence": report.persistence.value,
        "maxmemory": limit,
        "maxmemory-policy": report.eviction_policy,
        "replicas": report.replicas,
    }
    parts = [card(settings)]
    if report.problems:
        problems = [("fatal" if problem.is_fatal else "warning", problem.sentence) for problem in report.problems]
        parts.append(table(("problem", "what"), problems))
    if findings:
        parts.append(table(("rule", "subject", "detail"), [(one.rule, one.subject, one.detail) for one in findings]))
    else:
        parts.append("the state agrees with itself")
    if seen.unserved:
        rows = [(lane.queue, lane.workflow, lane.depth) for lane in seen.unserved]
        parts.append("no worker serves\n" + table(("queue", "workflow", "runs"), rows))
    return "\n\n".join(parts)


def _document(seen: _Seen) -> str:
    report = seen.report
    return json_document(
        {
            "redis": {
                "name": report.name,
                "version": report.version,
                "persistence": report.persistence.value,
                "max_memory_bytes": report.max_memory_bytes,
                "eviction_policy": report.eviction_policy,
                "replicas": report.replicas,
            },
            "problems": [{"is_fatal": problem.is_fatal, "sentence": problem.sentence} for problem in report.problems],
            "findings": [{"rule": one.rule, "subject": one.subject, "detail": one.detail} for one in seen.findings],
            "unserved": [
                {"queue": lane.queue, "workflow": lane.workflow, "runs": lane.depth} for lane in seen.unserved
            ],
        }
    )
