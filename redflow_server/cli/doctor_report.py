"""What `redflow doctor` finds out, and how it shows it."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import card, json_document, table, write
from redflow_server.cli.redis_argument import DEFAULT_URL
from redflow_server.cli.redis_faults import redis_fault
from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.runs import LaneDepth
from redflow_server.store.admin import Admin, RedisReport
from redflow_server.store.gauges import Gauges, read_gauges
from redflow_server.store.invariants import Violation, check
from redflow_server.store.keys import Keys
from redflow_server.store.unserved import unserved_lanes
from redflow_server.store.wire import Dial


def examine(arguments: argparse.Namespace) -> ExitCode:
    """Looks, and prints what there is. Raises CommandFailed."""
    try:
        seen = asyncio.run(_examine(arguments.redis, Keys(arguments.prefix)))
    except StoreUnavailable as error:
        fault = redis_fault(error, "doctor", advice="; give it an administrator's user")
        if fault.code is not ExitCode.REFUSED and arguments.redis == DEFAULT_URL:
            other = "`--redis` names another one, such as the `store` that `redflow dev` prints"
            raise CommandFailed(f"{fault}; {other}", fault.code) from error
        raise fault from error
    write(_document(seen) if arguments.output == "json" else _tables(seen))
    # Lanes without a worker, and what gateways have left to do, are no fault: these may be on their way.
    is_fit = not any(problem.is_fatal for problem in seen.report.problems)
    return ExitCode.OK if is_fit and not seen.findings else ExitCode.REFUSED


@dataclass(frozen=True, slots=True)
class _Seen:
    report: RedisReport
    findings: list[Violation]
    unserved: tuple[LaneDepth, ...]
    gauges: Gauges

    @property
    def overdue_since(self) -> datetime | None:
        """When the first of the overdue waits should have ended."""
        at_ms = self.gauges.overdue_since_ms
        return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)


async def _examine(url: str, keys: Keys) -> _Seen:
    dial = Dial(url)
    try:
        report = await Admin(dial, keys).inspect(accepts_eviction=False)
        async with dial.client() as client:
            findings = await check(client, keys)
            return _Seen(report, findings, await unserved_lanes(client, keys), await read_gauges(client, keys))
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
    left = (
        ("waits whose time is over", seen.gauges.overdue_waits, seen.overdue_since),
        ("events on their way to waits", seen.gauges.deliveries, None),
    )
    if any(count for _, count, _ in left):
        parts.append("left to gateways\n" + table(("what", "number", "since"), [row for row in left if row[1]]))
    if seen.gauges.dropped:
        parts.append(f"events forgotten early, because there were too many: {seen.gauges.dropped}")
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
            "waits": {"overdue": seen.gauges.overdue_waits, "overdue_since": seen.overdue_since},
            "events": {
                "left_to_deliver": seen.gauges.deliveries,
                "remembered": seen.gauges.remembered,
                "dropped": seen.gauges.dropped,
            },
        }
    )
