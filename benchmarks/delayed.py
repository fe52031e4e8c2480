"""`delayed`: runs that are to start later, one after the other, while another one is scheduled for tomorrow: how late
their handlers begin.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from benchmarks.engine import SLOTS, Load
from benchmarks.figures import Figures, Latency
from benchmarks.rig import Rig
from benchmarks.starting import start_all
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb

WARM_UP = 100
HEAD_START_S = 3.0
"""Before the first one is due: all have been started by then."""
APART_S = 0.02


def measure(load: Load) -> Figures:
    """One measurement."""
    with Rig() as rig:
        rig.start_redis()
        rig.start_gateway()
        rig.start_worker(SLOTS, "benchmarks.waiting_workflows:app")
        now = datetime.now(UTC)
        _start(rig.target, [now + timedelta(days=1), *[now] * WARM_UP])
        rig.wait_until_done(WARM_UP)
        first_due = datetime.now(UTC) + timedelta(seconds=HEAD_START_S)
        dues = [first_due + timedelta(seconds=APART_S * number) for number in range(load.n)]
        _start(rig.target, dues)
        assert datetime.now(UTC) < first_due, "they were due before all of them were started; take fewer"
        meter = rig.meter()
        time.sleep(max(0.0, (dues[-1] - datetime.now(UTC)).total_seconds()))
        rig.wait_until_done(WARM_UP + load.n)
        late_ms = rig.lateness_ms()[WARM_UP:]
        return Figures(
            n=load.n,
            store=rig.store,
            seconds=APART_S * load.n,
            latency=Latency.of(late_ms),
            cost=meter.cost(load.n),
            rss_mb=meter.rss_mb(),
            more={"max_ms": max(late_ms), "min_ms": min(late_ms)},
        )


def _start(target: str, dues: Sequence[datetime]) -> None:
    runs = []
    for due in dues:
        run = pb.StartRunRequest(workflow="delayed", queue="default", typed=True)
        run.available_time.FromDatetime(due)
        run.input.data = json.dumps(due.isoformat()).encode()
        runs.append(run)
    start_all(target, runs)
