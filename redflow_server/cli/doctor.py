"""`redflow doctor`: what the Redis promises, and whether all that is kept in it agrees with itself."""

from __future__ import annotations

import argparse
import asyncio

from redflow_server.cli.arguments import add_output
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import card, json_document, table, write
from redflow_server.cli.redis_argument import add_redis
from redflow_server.domain.errors import StoreUnavailable
from redflow_server.store.admin import Admin, RedisReport
from redflow_server.store.invariants import Violation, check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    add_redis(parser)
    add_output(parser)
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> ExitCode:
    try:
        report, findings = asyncio.run(_examine(arguments.redis, Keys(arguments.prefix)))
    except StoreUnavailable as error:
        raise CommandFailed(str(error), ExitCode.UNAVAILABLE) from error
    write(_document(report, findings) if arguments.output == "json" else _tables(report, findings))
    is_fit = not any(problem.is_fatal for problem in report.problems)
    return ExitCode.OK if is_fit and not findings else ExitCode.REFUSED


async def _examine(url: str, keys: Keys) -> tuple[RedisReport, list[Violation]]:
    dial = Dial(url)
    try:
        report = await Admin(dial, keys).inspect(accepts_eviction=False)
        async with dial.client() as client:
            return report, await check(client, keys)
    finally:
        await dial.close()


def _tables(report: RedisReport, findings: list[Violation]) -> str:
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
    return "\n\n".join(parts)


def _document(report: RedisReport, findings: list[Violation]) -> str:
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
            "findings": [{"rule": one.rule, "subject": one.subject, "detail": one.detail} for one in findings],
        }
    )
