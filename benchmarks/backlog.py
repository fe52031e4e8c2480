"""Runs that are queued before the worker comes, drained by one worker through one gateway."""

from __future__ import annotations

import time

import grpc

from benchmarks.rig import Rig, cpu_s, rss_mb
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.api.v1 import run_service_pb2_grpc

BATCH = 1000


def measure(workflow: str, runs: int, slots: int) -> dict[str, object]:
    """One measurement; every *_us is CPU time per run."""
    with Rig() as rig:
        redis = rig.start_redis()
        gateway = rig.start_gateway()
        enqueue_per_s = _fill(rig.target, workflow, runs)
        before = cpu_s(gateway), cpu_s(redis)
        worker = rig.start_worker(slots)
        rig.wait_until_done(1)
        began, worker_before = time.monotonic(), cpu_s(worker)
        rig.wait_until_done(runs)
        seconds = time.monotonic() - began
        return {
            "n": runs,
            "concurrency": slots,
            "seconds": round(seconds, 3),
            "per_s": round(runs / seconds),
            "enqueue_per_s": round(enqueue_per_s),
            "gateway_cpu_us": round(1e6 * (cpu_s(gateway) - before[0]) / runs),
            "worker_cpu_us": round(1e6 * (cpu_s(worker) - worker_before) / runs),
            "redis_us": round(1e6 * (cpu_s(redis) - before[1]) / runs),
            "rss_mb": {
                "gateway": round(rss_mb(gateway)),
                "worker": round(rss_mb(worker)),
                "redis": round(rss_mb(redis)),
            },
            "store": rig.redis_name,
        }


def _fill(target: str, workflow: str, runs: int) -> float:
    """Queues the runs in batches; how many a second."""
    began = time.monotonic()
    with grpc.insecure_channel(target) as channel:
        service = run_service_pb2_grpc.RunServiceStub(channel)
        for start in range(0, runs, BATCH):
            request = pb.BatchStartRunsRequest()
            for number in range(start, min(start + BATCH, runs)):
                run = request.runs.add(workflow=workflow, queue="default", typed=True)
                run.input.data = str(number).encode()
            service.BatchStartRuns(request, timeout=60)
    return runs / (time.monotonic() - began)
