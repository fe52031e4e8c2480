"""Refusals: what a caller asked for and does not get, each with a stable reason.

A class's docstring is its default message. `rpc/errors.py` gives each its status code; nothing else knows codes.
"""

from __future__ import annotations


class Refusal(Exception):
    """The request was refused."""

    reason = "REFUSED"

    def __init__(self, message: str = "", **details: str) -> None:
        """`details` names what the refusal is about, such as field, limit and what came."""
        super().__init__(message or type(self).__doc__)
        self.details = details


class Unavailable(Refusal):
    """The call may succeed when it is repeated after `retry_delay_ms`."""

    reason = "UNAVAILABLE"
    retry_delay_ms = 1000


class InvalidInput(Refusal):
    """A field of the request is invalid."""

    reason = "INVALID_INPUT"

    def __init__(self, field: str, rule: str, came: object) -> None:
        shown = ascii(came)
        shown = shown if len(shown) <= 100 else shown[:97] + "..."
        super().__init__(f"{field} {rule}; got {shown}", field=field, rule=rule, came=shown)


class PayloadTooLarge(Refusal):
    """A payload is larger than the limit."""

    reason = "PAYLOAD_TOO_LARGE"

    def __init__(self, field: str, limit_bytes: int, size_bytes: int) -> None:
        super().__init__(
            f"{field} must be at most {limit_bytes} bytes; got {size_bytes} bytes",
            field=field,
            limit_bytes=str(limit_bytes),
            size_bytes=str(size_bytes),
        )


class RunNotFound(Refusal):
    """There is no run with this id."""

    reason = "RUN_NOT_FOUND"


class WorkflowNotFound(Refusal):
    """No workflow with this name is registered."""

    reason = "WORKFLOW_NOT_FOUND"


class IdempotencyKeyReused(Refusal):
    """The idempotency key was used with other input."""

    reason = "IDEMPOTENCY_KEY_REUSED"


class TokenNotFound(Refusal):
    """No step waits, or has waited, for this token."""

    reason = "TOKEN_NOT_FOUND"


class NotWaiting(Refusal):
    """The wait for the token is over: it was completed with something else, has timed out, or its run has ended."""

    reason = "NOT_WAITING"


class LeaseLost(Refusal):
    """The lease token is not the run's current one."""

    reason = "LEASE_LOST"


class ResetNotAllowed(Refusal):
    """The gateway was not started with --allow-reset."""

    reason = "RESET_NOT_ALLOWED"


class RevisionUnsupported(Refusal):
    """The gateway does not speak this revision of the protocol."""

    reason = "REVISION_UNSUPPORTED"


class ProtocolViolation(Refusal):
    """The worker broke the protocol."""

    reason = "PROTOCOL_VIOLATION"


class SessionSilent(Refusal):
    """The worker was not heard for too long."""

    reason = "SESSION_SILENT"


class SessionSuperseded(Refusal):
    """A newer session of the same worker is open."""

    reason = "SESSION_SUPERSEDED"


class GatewayDraining(Unavailable):
    """The gateway is shutting down; use another one."""

    reason = "GATEWAY_DRAINING"


class StoreUnavailable(Unavailable):
    """Redis does not answer."""

    reason = "STORE_UNAVAILABLE"


class StoreFull(Refusal):
    """Redis has reached its memory limit; what frees memory goes on."""

    reason = "STORE_FULL"


class TooManyWaiters(Refusal):
    """The gateway has as many callers waiting for runs as it may."""

    reason = "TOO_MANY_WAITERS"


class InternalFault(Refusal):
    """A fault of the gateway, which its log tells more about."""

    reason = "INTERNAL"


class PrefixTaken(Refusal):
    """The keys under the prefix are not this engine's."""

    reason = "PREFIX_TAKEN"


class RedisUnfit(Refusal):
    """The Redis will not do."""

    reason = "REDIS_UNFIT"
