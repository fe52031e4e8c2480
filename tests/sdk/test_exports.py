"""What users may import, and what importing it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import redflow_sdk
from tests.sdk.worker_program import ROOT

PUBLIC = {
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
}
"""A name that is gone breaks programs, and a name that comes stays for ever: change this on purpose."""


def test_the_public_names_are_these() -> None:
    assert set(redflow_sdk.__all__) == PUBLIC
    assert len(redflow_sdk.__all__) == len(set(redflow_sdk.__all__))


def test_every_public_name_is_there_and_documented() -> None:
    for name in PUBLIC - {"VERSION"}:
        assert getattr(redflow_sdk, name).__doc__, name


def test_everything_a_user_may_catch_comes_from_one_root() -> None:
    errors = [value for name in PUBLIC if isinstance(value := getattr(redflow_sdk, name), type)]
    errors = [kind for kind in errors if issubclass(kind, BaseException)]
    assert errors and all(issubclass(kind, redflow_sdk.RedflowError) for kind in errors)
    assert issubclass(redflow_sdk.RedflowError, Exception)


def test_the_package_is_typed_for_its_users() -> None:
    assert (Path(redflow_sdk.__file__).parent / "py.typed").is_file()


def test_importing_it_starts_nothing_and_brings_in_no_gateway() -> None:
    program = (
        "import sys, threading\n"
        "import redflow_sdk\n"
        "async def empty(ctx): ...\n"
        "redflow_sdk.Client(); redflow_sdk.SyncClient(); redflow_sdk.Worker(workflows=[redflow_sdk.workflow(empty)])\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'redflow_server', 'redis', 'hiredis', 'pydantic', 'uvloop', 'croniter'}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=30)
