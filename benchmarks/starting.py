"""Starts runs by the wire, many in one call: what a workload sets up before it measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import grpc

from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.api.v1 import run_service_pb2_grpc

BATCH: Final = 500


def start_all(target: str, runs: Sequence[pb.StartRunRequest]) -> None:
    """Starts them at the gateway, and sees that each was."""
    with grpc.insecure_channel(target) as channel:
        service = run_service_pb2_grpc.RunServiceStub(channel)
        for first in range(0, len(runs), BATCH):
            batch = pb.BatchStartRunsRequest(runs=runs[first : first + BATCH])
            answer = service.BatchStartRuns(batch, timeout=60)
            assert all(result.HasField("started") for result in answer.results)
