"""Behaviours of the original engine's suite: failure handlers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redflow_sdk import (
    BlockingContext,
    Client,
    Context,
    FailureContext,
    NonRetriableError,
    RetryPolicy,
    RunFailedError,
    Workflow,
    workflow,
)
from tests.conftest import StartWorker

TWICE = RetryPolicy(max_attempts=2)


def fails_in_a_task(raised: list[Exception], seen: list[FailureContext]) -> Workflow[dict[str, str], None]:
    async def note(failed: FailureContext) -> None:
        seen.append(failed)

    @workflow(name="on-failure-retry-exhaustion", queue="q_on_failure_1", retry=TWICE, on_failure=note)
    async def always_fails(ctx: Context, input: dict[str, str]) -> None:
        raised.append(RuntimeError("always fails"))
        raise raised[-1]

    return always_fails


def fails_in_a_thread(raised: list[Exception], seen: list[FailureContext]) -> Workflow[dict[str, str], None]:
    @workflow(name="on-failure-retry-exhaustion", queue="q_on_failure_1", retry=TWICE, on_failure=seen.append)
    def always_fails(ctx: BlockingContext, input: dict[str, str]) -> None:
        raised.append(RuntimeError("always fails"))
        raise raised[-1]

    return always_fails


@pytest.mark.parametrize("make", [fails_in_a_task, fails_in_a_thread])
async def test_on_failure_is_called_after_retry_exhaustion_with_its_context(
    make: Callable[[list[Exception], list[FailureContext]], Workflow[dict[str, str], None]],
    client: Client,
    start_worker: StartWorker,
) -> None:
    raised: list[Exception] = []
    seen: list[FailureContext] = []
    always_fails = make(raised, seen)
    await start_worker(always_fails, queues=["q_on_failure_1"])

    handle = await client.start(always_fails, {"some": "data"})
    with pytest.raises(RunFailedError, match="Run failed"):
        await handle.result(timeout=8)

    [failed] = seen
    assert failed.error is raised[1], "the very exception that the last attempt raised"
    assert len(raised) == 2
    assert (failed.failure.type, failed.failure.message) == ("RuntimeError", "always fails")
    assert failed.input == {"some": "data"}
    assert failed.run.id == handle.id
    assert failed.run.workflow == "on-failure-retry-exhaustion"
    assert failed.run.queue == "q_on_failure_1"
    assert (failed.run.attempt, failed.run.max_attempts) == (2, 2)
    run = await handle.get()
    assert (run.status, run.failure_handler) == ("failed", "done")


async def test_on_failure_is_called_immediately_with_a_non_retriable_error(
    client: Client, start_worker: StartWorker
) -> None:
    raised: list[Exception] = []
    seen: list[FailureContext] = []

    @workflow(
        name="on-failure-non-retriable",
        queue="q_on_failure_2",
        retry=RetryPolicy(max_attempts=5),
        on_failure=seen.append,
    )
    async def permanent(ctx: Context) -> None:
        raised.append(NonRetriableError("permanent"))
        raise raised[-1]

    await start_worker(permanent, queues=["q_on_failure_2"])

    handle = await client.start(permanent)
    with pytest.raises(RunFailedError, match="Run failed"):
        await handle.result(timeout=8)

    [failed] = seen
    assert isinstance(failed.error, NonRetriableError)
    assert failed.error is raised[0]
    assert len(raised) == 1
    assert failed.run.attempt == 1
    assert failed.failure.kind == "non_retriable"
