"""Durable workflows in Python, on a redflow gateway.

from redflow_sdk import Client, Context, Worker, workflow

@workflow(name="greet")
async def greet(ctx: Context, name: str) -> str:
    return await ctx.step.run("compose", lambda: f"hello {name}")
"""

from redflow_sdk.client import Client, RunList
from redflow_sdk.context import BlockingContext, Context, RunInfo
from redflow_sdk.errors import (
    CanceledError,
    DuplicateStepError,
    IdempotencyKeyReusedError,
    InputValidationError,
    InvalidInputError,
    NonDeterministicError,
    NonRetriableError,
    RedflowError,
    RefusedError,
    RetryAfterError,
    RunCanceledError,
    RunFailedError,
    RunNotFoundError,
    SerializationError,
    SessionRefusedError,
    StepFailedError,
    UnavailableError,
    UnknownWorkflowError,
)
from redflow_sdk.handle import RunHandle
from redflow_sdk.records import Failure, Run, Step, WaitingFor
from redflow_sdk.retry import RetryPolicy
from redflow_sdk.version import VERSION
from redflow_sdk.worker import Worker
from redflow_sdk.workflow import Workflow, workflow

__all__ = [
    "VERSION",
    "BlockingContext",
    "CanceledError",
    "Client",
    "Context",
    "DuplicateStepError",
    "Failure",
    "IdempotencyKeyReusedError",
    "InputValidationError",
    "InvalidInputError",
    "NonDeterministicError",
    "NonRetriableError",
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
    "SerializationError",
    "SessionRefusedError",
    "Step",
    "StepFailedError",
    "UnavailableError",
    "UnknownWorkflowError",
    "WaitingFor",
    "Worker",
    "Workflow",
    "workflow",
]
