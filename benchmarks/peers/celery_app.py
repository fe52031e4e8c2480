"""The no-op task in Celery: acknowledged after it has run, its result kept in Redis."""

from __future__ import annotations

import os

from celery import Celery

from benchmarks.counter import count

URL = os.environ["REDFLOW_BENCH_REDIS"]

app = Celery("peer", broker=URL, backend=URL)
app.conf.task_acks_late = True
app.conf.worker_prefetch_multiplier = 1
app.conf.task_ignore_result = False
app.conf.worker_cancel_long_running_tasks_on_connection_loss = True


@app.task(name="noop")
def noop(number: int) -> int:
    """Does nothing."""
    count()
    return number


def fill(runs: int) -> None:
    """Queues the tasks over one connection."""
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(runs):
            noop.apply_async((number,), producer=producer)
