"""Refusals cross the wire through one table, by their reason."""

from __future__ import annotations

import grpc

from redflow_sdk._transport.channel import ERRORS
from redflow_server.domain import errors
from redflow_server.rpc.errors import CODES

RETRIABLE = {grpc.StatusCode.UNAVAILABLE}
INVALID = {grpc.StatusCode.INVALID_ARGUMENT}


def _refusals() -> set[type[errors.Refusal]]:
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.Refusal)]
    return set(classes) - {errors.Refusal, errors.Unavailable}


def test_every_refusal_has_a_status_code() -> None:
    assert _refusals() == set(CODES)


def test_every_refusal_has_a_reason_of_its_own_and_a_message() -> None:
    reasons = [kind.reason for kind in _refusals()]
    assert len(set(reasons)) == len(reasons)
    assert all(kind.__doc__ and kind.__doc__.endswith(".") for kind in _refusals())


def test_what_may_be_repeated_and_what_is_invalid_never_share_a_code() -> None:
    for kind, code in CODES.items():
        assert issubclass(kind, errors.Unavailable) == (code in RETRIABLE), kind
        assert issubclass(kind, (errors.InvalidInput, errors.PayloadTooLarge, errors.ProtocolViolation)) == (
            code in INVALID
        ), kind


def test_the_sdk_knows_every_reason_a_client_can_meet() -> None:
    met_by_workers_only = {"LEASE_LOST", "REVISION_UNSUPPORTED", "PROTOCOL_VIOLATION", "SESSION_SILENT"}
    met_by_workers_only |= {"SESSION_SUPERSEDED"}
    met_at_start_only = {"PREFIX_TAKEN", "REDIS_UNFIT"}
    told_by_reason_only = {"INTERNAL", "RESET_NOT_ALLOWED", "STORE_FULL", "TOO_MANY_WAITERS"}
    known = set(ERRORS) | met_by_workers_only | met_at_start_only | told_by_reason_only
    assert {kind.reason for kind in _refusals()} == known
