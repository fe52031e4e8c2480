"""The items of a worker, with everything filled in; a test names only what it is about."""

from __future__ import annotations

import itertools
from typing import Any, Final

from redflow_sdk.proto.v1 import failure_pb2, payload_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb

Fields = Any  # Any: whatever the message takes

REQUEST_IDS: Final = itertools.count(1)


def a_payload(data: bytes = b"1", **changes: Fields) -> payload_pb2.Payload:
    """JSON, unless a test says otherwise."""
    return payload_pb2.Payload(data=data, **changes)


def a_failure(message: str = "no luck", **changes: Fields) -> failure_pb2.Failure:
    """An error of user code that may be retried."""
    fields = {"type": "ValueError", "failure_kind": failure_pb2.FAILURE_KIND_ERROR, "language": "python"}
    return failure_pb2.Failure(message=message, **{**fields, **changes})


def _item(assignment: pb.Assignment | str, changes: dict[str, Fields]) -> dict[str, Fields]:
    token = assignment if isinstance(assignment, str) else assignment.lease_token
    return {"request_id": next(REQUEST_IDS), "lease_token": token, **changes}


def a_step(assignment: pb.Assignment | str, name: str = "a", data: bytes = b"1", **changes: Fields) -> pb.StepReport:
    """A step function that returned these bytes."""
    fields = {
        "step_name": name,
        "step_seq": 1,
        "step_kind": run_pb2.STEP_KIND_FUNCTION,
        "status": run_pb2.STEP_STATUS_SUCCEEDED,
    }
    if not {"output", "failure"} & changes.keys():
        fields["output"] = a_payload(data)
    return pb.StepReport(**_item(assignment, {**fields, **changes}))


def a_failed_step(assignment: pb.Assignment | str, name: str = "a", **changes: Fields) -> pb.StepReport:
    """A step function that raised."""
    return a_step(
        assignment, name, **{"status": run_pb2.STEP_STATUS_FAILED, "failure": a_failure(), "final": True, **changes}
    )


def a_result(assignment: pb.Assignment | str, data: bytes = b'"done"', **changes: Fields) -> pb.RunResult:
    """A handler that returned these bytes."""
    if not {"output", "failure", "canceled"} & changes.keys():
        changes["output"] = a_payload(data)
    return pb.RunResult(**_item(assignment, changes))


def a_raised(assignment: pb.Assignment | str, **changes: Fields) -> pb.RunResult:
    """A handler that raised."""
    return a_result(assignment, failure=a_failure(**changes))


def a_release(
    assignment: pb.Assignment | str,
    reason: pb.ReleaseReason.ValueType = pb.RELEASE_REASON_SHUTDOWN,
    **changes: Fields,
) -> pb.LeaseRelease:
    """A lease handed back."""
    return pb.LeaseRelease(**_item(assignment, {"reason": reason, **changes}))


def held(*tokens: str, state: pb.LeaseState.ValueType = pb.LEASE_STATE_RUNNING) -> list[pb.HeldLease]:
    """The inventory of a worker that holds these leases."""
    return [pb.HeldLease(lease_token=token, state=state) for token in tokens]
