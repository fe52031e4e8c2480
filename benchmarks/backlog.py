"""Runs that are queued before the worker comes, drained by one worker through one gateway."""

from __future__ import annotations

import time

import grpc

from benchmarks.drain import drain
from benchmarks.rig import Rig
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.api.v1 import run_service_pb2_grpc

BATCH = 1000


def measure(workflow: str, runs: int, slots: int) -> dict[str, object]:
    """One measurement."""
    with Rig() as rig:
        others = {"redis": rig.start_redis(), "gateway": rig.start_gateway()}
        enqueue_per_s = _fill(rig.target, workflow, runs)
        drained = drain(rig, runs, slots, others, lambda: rig.start_worker(slots))
        return {**drained, "enqueue_per_s": round(enqueue_per_s)}


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
