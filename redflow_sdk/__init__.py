"""Durable workflows in Python, on a redflow gateway.

from redflow_sdk import Client, Context, Worker, workflow

@workflow(name="greet")
async def greet(ctx: Context, name: str) -> str:
    return await ctx.step.run("compose", lambda: f"hello {name}")
"""

from redflow_sdk._types import JsonValue
from redflow_sdk.client import Client, RunList
from redflow_sdk.codec import PayloadCodec
from redflow_sdk.context import BlockingContext, Context, FailureContext, RunInfo
from redflow_sdk.cron import Cron
from redflow_sdk.errors import (
    CanceledError,
    ChildCanceledError,
    ChildFailedError,
    CodecError,
    DuplicateStepError,
    IdempotencyKeyReusedError,
    InputValidationError,
    InvalidInputError,
    NonDeterministicError,
    NonRetriableError,
    NotWaitingError,
    RedflowError,
    RefusedError,
    RetryAfterError,
    RunCanceledError,
    RunFailedError,
    RunNotFoundError,
    SerializationError,
    SessionRefusedError,
    StepFailedError,
    TokenFailedError,
    TokenNotFoundError,
    UnavailableError,
    UnknownWorkflowError,
)
from redflow_sdk.handle import RunHandle
from redflow_sdk.health import WorkerHealth
from redflow_sdk.middleware import CallNext, Middleware, StartInfo, StepInfo
from redflow_sdk.records import (
    CronTrigger,
    Event,
    Failure,
    LaneDepth,
    Payload,
    Raced,
    Run,
    Schedule,
    Stats,
    Step,
    WaitingFor,
    WorkerInfo,
    WorkflowInfo,
)
from redflow_sdk.retry import RetryPolicy
from redflow_sdk.sync_client import SyncClient, SyncRunHandle, SyncRunList
from redflow_sdk.token import BlockingToken, Token
from redflow_sdk.version import VERSION
from redflow_sdk.worker import Worker
from redflow_sdk.workflow import Workflow, workflow

__all__ = [
    "VERSION",
    "BlockingContext",
    "BlockingToken",
    "CallNext",
    "CanceledError",
    "ChildCanceledError",
    "ChildFailedError",
    "Client",
    "CodecError",
    "Context",
    "Cron",
    "CronTrigger",
    "DuplicateStepError",
    "Event",
    "Failure",
    "FailureContext",
    "IdempotencyKeyReusedError",
    "InputValidationError",
    "InvalidInputError",
    "JsonValue",
    "LaneDepth",
    "Middleware",
    "NonDeterministicError",
    "NonRetriableError",
    "NotWaitingError",
    "Payload",
    "PayloadCodec",
    "Raced",
    "RedflowError",
    "RefusedError",
    "RetryAfterError",
    "RetryPolicy",
    "Run",
    "RunCanceledError",
    "RunFailedError",
    "RunHandle",
    "RunInfo",
    "RunList",
    "RunNotFoundError",
    "Schedule",
    "SerializationError",
    "SessionRefusedError",
    "StartInfo",
    "Stats",
    "Step",
    "StepFailedError",
    "StepInfo",
    "SyncClient",
    "SyncRunHandle",
    "SyncRunList",
    "Token",
    "TokenFailedError",
    "TokenNotFoundError",
    "UnavailableError",
    "UnknownWorkflowError",
    "WaitingFor",
    "Worker",
    "WorkerHealth",
    "WorkerInfo",
    "Workflow",
    "WorkflowInfo",
    "workflow",
]
