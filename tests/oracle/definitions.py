"""Registrations, assertions and sessions, drawn like the other requests."""

from __future__ import annotations

from redflow_server.domain.ids import schedule_id_for
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import (
    Assertion,
    CronSchedule,
    PlannedSchedule,
    Registration,
    RetryPolicy,
    WorkflowDefinition,
)
from redflow_server.domain.session import SdkInfo
from redflow_server.domain.workers import Worker
from tests.oracle import names
from tests.oracle.bench import Bench
from tests.oracle.requests import Requests

POLICIES = (
    None,
    None,
    RetryPolicy(0, 1.0, 0, 0.0),
    RetryPolicy(100, 2.0, 1000, 0.5),
    RetryPolicy(1, 1000.0, 10**9, 1.0),
)


def a_registration(requests: Requests, bench: Bench) -> Registration:
    """Of some workflows of an owner."""
    chosen = requests.some(names.WORKFLOWS, 0, 5)
    definitions = tuple(a_definition(requests, name) for name in chosen)
    schedules = tuple(
        PlannedSchedule(
            schedule_id_for(definition.name, cron.schedule_id),
            definition.name,
            cron,
            bench.now + requests.one_of((0, 1, 60_000)),
        )
        for definition in definitions
        for cron in definition.cron
    )
    return Registration(requests.one_of(names.OWNERS), requests.one_of(names.BUILDS), definitions, schedules)


def a_definition(requests: Requests, name: str) -> WorkflowDefinition:
    crons = requests.some(("nightly", "1:x|☃"), 0, 2)
    return WorkflowDefinition(
        name=name,
        digest=requests.one_of(("digest-1", "digest-1", "digest-2")),
        queue=requests.one_of(names.QUEUES),
        max_attempts=requests.one_of((1, 2)),
        retry_policy=requests.one_of(POLICIES),
        run_timeout_ms=requests.one_of((None, None, 1, 60_000)),
        start_timeout_ms=requests.one_of((None, None, 1, 60_000)),
        failure_handler_timeout_ms=requests.one_of((None, 1000)),
        cron=tuple(a_cron(requests, label) for label in crons),
        event_names=tuple(requests.some(names.EVENTS, 0, 3)),
        has_failure_handler=requests.coin(),
    )


def a_cron(requests: Requests, label: str) -> CronSchedule:
    return CronSchedule(
        schedule_id=label,
        expression=requests.one_of(("* * * * *", "0 0 * * *")),
        timezone=requests.one_of(("", "Europe/Berlin")),
        input=requests.one_of((None, Payload(b"\xff\x00"), Payload(b"{}", "application/x", (("a", "b"),)))),
    )


def an_assertion(requests: Requests, bench: Bench) -> Assertion:
    """Mostly of what is registered, as it is."""
    known = list(bench.world.workflows.values())
    if known and not requests.now_and_then(6):
        one = requests.one_of(known)
        digest = one.definition.digest if requests.coin() else "digest-3"
        return Assertion(one.owner, requests.one_of((one.build, *names.BUILDS)), one.definition.name, digest)
    return Assertion(requests.one_of(names.OWNERS), "build-1", requests.one_of(names.WORKFLOWS), "digest-1")


def a_worker(requests: Requests, bench: Bench) -> Worker:
    return Worker(
        session_id=requests.one_of(names.SESSIONS),
        gateway_id=requests.one_of(names.GATEWAYS),
        worker_name=requests.one_of(names.ODD),
        owner=requests.one_of(names.OWNERS),
        instance_id="instance",
        build_id=requests.one_of(names.BUILDS),
        sdk=SdkInfo("redflow", "1", "python"),
        queues=(requests.one_of(names.QUEUES),),
        workflows=(requests.one_of(names.WORKFLOWS),),
        slot_limit=requests.one_of((1, 10)),
        leases=0,
        is_draining=requests.coin(),
        connected_at_ms=bench.now,
    )
