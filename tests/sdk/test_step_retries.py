"""Steps that are tried again within an attempt of their run: how often, after which delay, and what is on record."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from redflow_sdk import (
    BlockingContext,
    Context,
    InvalidInputError,
    NonRetriableError,
    RetryAfterError,
    RetryPolicy,
    workflow,
)
from redflow_sdk._retries import delay_before_next, pause_name
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import cancellation, failed, forbids_retry, kind_of, succeeded, value_of
from tests.sdk.scripted_gateway import ScriptedGateway

AT_ONCE = RetryPolicy(max_attempts=3, initial=0.01, maximum=0.01, jitter=0)
calls: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    calls.clear()


def breaks(times: int, error: BaseException | None = None) -> Any:
    """A function that raises so many times, and then gives how often it was called."""

    def function() -> int:
        calls.append("called")
        if len(calls) <= times:
            raise error or ConnectionError(f"no {len(calls)}")
        return len(calls)

    return function


def tries(function: Any, policy: RetryPolicy | None = AT_ONCE, **options: Any) -> list[Any]:
    """Workflows of both kinds that run a step with a policy: tries-async, tries-def."""

    @workflow(name="tries-async")
    async def tries_async(ctx: Context) -> int:
        return int(await ctx.step.run("it", function, retry=policy, **options))

    @workflow(name="tries-def")
    def tries_blocking(ctx: BlockingContext) -> int:
        return int(ctx.step.run("it", function, retry=policy, **options))

    return [tries_async, tries_blocking]


def recorded(gateway: ScriptedGateway, token: str) -> list[tuple[int, bool, str]]:
    """Of each report of the step: the number of its try, whether that was the last, and the type of its failure."""
    return [(it.message.tries, it.message.final, it.message.failure.type) for it in gateway.log.reports(token, "it")]


BOTH = pytest.mark.parametrize("kind", ["async", "def"])


# ---- how often ----


@BOTH
async def test_a_step_is_tried_until_it_succeeds_and_each_try_is_on_record(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *tries(breaks(2)))
    token = scripted.assign(f"tries-{kind}")
    result = await scripted.log.result(token)
    assert value_of(result.output) == 3 and result.steps_recorded == 1
    assert recorded(scripted, token) == [(1, False, "ConnectionError"), (2, False, "ConnectionError"), (3, False, "")]
    assert {it.message.step_seq for it in scripted.log.reports(token)} == {1}
    assert scripted.log.said(token) == ["StepReport"] * 3 + ["RunResult"], "it waits where it is"


@BOTH
async def test_a_try_that_fails_is_said_in_the_log_of_the_worker(
    kind: str, scripted: ScriptedGateway, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    await connect(scripted, *tries(breaks(4)))
    await scripted.log.result(scripted.assign(f"tries-{kind}", run_id="run-7"))
    assert "step 'it' of run run-7 failed in try 1 of 3, again in 0.0 s: ConnectionError: no 1" in caplog.text
    assert "step 'it' of run run-7 failed in try 3 of 3, its last: ConnectionError: no 3" in caplog.text
    caplog.clear()
    await scripted.log.result(scripted.assign(f"tries-{kind}", run_id="run-8"))
    assert "step 'it' of run run-8 failed in try 1 of 3" in caplog.text
    assert "try 2" not in caplog.text


@BOTH
async def test_the_last_try_is_final_and_raises_what_it_raised(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *tries(breaks(9)))
    token = scripted.assign(f"tries-{kind}", max_attempts=2)
    failure = (await scripted.log.result(token)).failure
    assert (failure.type, failure.message) == ("ConnectionError", "no 3") and not forbids_retry(failure)
    assert [final for _, final, _ in recorded(scripted, token)] == [False, False, True]


@BOTH
async def test_a_function_without_a_policy_is_tried_once(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *tries(breaks(9), policy=None))
    token = scripted.assign(f"tries-{kind}", max_attempts=2)
    await scripted.log.result(token)
    assert recorded(scripted, token) == [(1, True, "ConnectionError")]


@BOTH
@pytest.mark.parametrize("error", [NonRetriableError("never"), InvalidInputError("senseless"), SystemExit(3)])
async def test_what_is_not_to_be_tried_again_is_not(
    error: BaseException, kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *tries(breaks(9, error)))
    token = scripted.assign(f"tries-{kind}", max_attempts=2)
    assert (await scripted.log.result(token)).HasField("failure")
    assert recorded(scripted, token) == [(1, True, type(error).__name__)]


@BOTH
async def test_a_value_that_cannot_be_written_is_not_made_again(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    def function() -> object:
        calls.append("called")
        return object()

    await connect(scripted, *tries(function))
    token = scripted.assign(f"tries-{kind}", max_attempts=2)
    assert kind_of((await scripted.log.result(token)).failure) == "serialization"
    assert recorded(scripted, token) == [(1, True, "SerializationError")] and len(calls) == 1


async def test_each_try_has_the_time_out_of_its_own(scripted: ScriptedGateway, connect: StartWorker) -> None:
    async def function() -> int:
        calls.append("called")
        if len(calls) < 3:
            await asyncio.sleep(60)
        return len(calls)

    await connect(scripted, *tries(function, timeout=0.05))
    token = scripted.assign("tries-async")
    assert value_of((await scripted.log.result(token)).output) == 3
    assert [failure for _, _, failure in recorded(scripted, token)] == ["TimeoutError", "TimeoutError", ""]


# ---- across deliveries and attempts ----


@BOTH
async def test_tries_of_a_delivery_before_count(kind: str, scripted: ScriptedGateway, connect: StartWorker) -> None:
    await connect(scripted, *tries(breaks(9)))
    step = failed("it", "ConnectionError", "no 2", is_final=False)
    step.tries = 2
    token = scripted.assign(f"tries-{kind}", delivery_count=2, steps=[step])
    assert (await scripted.log.result(token)).failure.message == "no 1"
    assert recorded(scripted, token) == [(3, True, "ConnectionError")]


@BOTH
async def test_another_attempt_counts_anew(kind: str, scripted: ScriptedGateway, connect: StartWorker) -> None:
    await connect(scripted, *tries(breaks(2)))
    step = failed("it", "ConnectionError", "no 3")
    step.tries = 3
    token = scripted.assign(f"tries-{kind}", attempt=2, max_attempts=2, steps=[step])
    assert value_of((await scripted.log.result(token)).output) == 3
    assert [number for number, _, _ in recorded(scripted, token)] == [1, 2, 3]


@BOTH
async def test_a_failure_that_was_the_last_raises_again_in_the_same_attempt_without_a_try(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *tries(breaks(9)))
    token = scripted.assign(f"tries-{kind}", delivery_count=2, steps=[failed("it", "ConnectionError", "no 3")])
    assert (await scripted.log.result(token)).failure.message == "no 3"
    assert calls == []


@BOTH
async def test_a_value_on_record_is_the_value_however_many_tries_it_took(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *tries(breaks(9)))
    step = succeeded("it", 3)
    step.tries = 3
    assert value_of((await scripted.log.result(scripted.assign(f"tries-{kind}", steps=[step]))).output) == 3
    assert calls == []


# ---- and when it is over ----


@BOTH
async def test_a_cancel_ends_the_pause_between_tries(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    policy = RetryPolicy(max_attempts=9, initial=0.9, maximum=0.9, jitter=0)
    await connect(scripted, *tries(breaks(9), policy))
    token = scripted.assign(f"tries-{kind}")
    await scripted.log.report(token, "it")
    scripted.send(cancellations=[cancellation(token)])
    result = await scripted.log.result(token, within=0.6)
    assert result.canceled.reason == pb.CANCELED_REASON_REQUESTED
    assert len(calls) == 1 and scripted.log.said(token) == ["StepReport", "RunResult"]


async def test_a_handler_that_handles_what_the_last_try_raised_goes_on(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="catches")
    async def catches(ctx: Context) -> str:
        try:
            await ctx.step.run("it", breaks(9), retry=AT_ONCE)
        except ConnectionError as error:
            return str(error)
        return ""

    await connect(scripted, catches)
    assert value_of((await scripted.log.result(scripted.assign("catches"))).output) == "no 3"


async def test_siblings_go_on_while_a_step_waits_for_its_next_try(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="both")
    async def both(ctx: Context) -> list[Any]:
        policy = RetryPolicy(max_attempts=2, initial=0.3, jitter=0)
        return list(
            await asyncio.gather(
                ctx.step.run("it", breaks(1), retry=policy), *(ctx.step.run(f"s{n}", lambda: "s") for n in range(3))
            )
        )

    await connect(scripted, both)
    token = scripted.assign("both")
    await eventually(lambda: len(scripted.log.reports(token)) == 4, within=0.25, every=0.005)
    assert value_of((await scripted.log.result(token)).output) == [2, "s", "s", "s"]


@pytest.mark.parametrize("retry", [5, "often", {"max_attempts": 3}])
async def test_what_is_no_policy_is_refused_before_the_first_try(
    retry: Any, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *tries(breaks(9), retry))
    failure = (await scripted.log.result(scripted.assign("tries-async", max_attempts=5))).failure
    assert failure.type == "InvalidInputError" and "retry must be a RetryPolicy" in failure.message
    assert calls == []


# ---- delays ----


def test_delays_grow_to_the_maximum_and_jitter_only_lengthens_them() -> None:
    policy = RetryPolicy(max_attempts=9, initial=1, multiplier=3, maximum=20, jitter=0.5)
    for number, shortest in ((1, 1), (2, 3), (3, 9), (4, 20), (8, 20)):
        delays = [delay_before_next(policy, number, ValueError()) for _ in range(50)]
        assert all(delay is not None and shortest <= delay <= 1.5 * shortest for delay in delays)
        assert len(set(delays)) > 1
    assert delay_before_next(policy, 9, ValueError()) is None


def test_a_million_tries_have_a_delay() -> None:
    assert delay_before_next(RetryPolicy(max_attempts=1_000_000, jitter=0), 999_999, ValueError()) == 30


def test_the_function_may_say_after_how_long_also_as_a_cause() -> None:
    policy = RetryPolicy(max_attempts=9)
    error = RetryAfterError(delay=7)
    assert delay_before_next(policy, 1, error) == 7
    wrapped = ValueError()
    wrapped.__cause__ = error
    assert delay_before_next(policy, 1, wrapped) == 7


@pytest.mark.parametrize("delay", [0.0, 0.4])
async def test_a_short_delay_is_waited_for_in_place(
    delay: float, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    policy = RetryPolicy(max_attempts=2, initial=30, jitter=0)
    await connect(scripted, *tries(breaks(1, RetryAfterError(delay=delay)), policy))
    before = time.monotonic()
    token = scripted.assign("tries-async")
    await scripted.log.result(token)
    assert delay <= time.monotonic() - before < delay + 5
    assert scripted.log.said(token) == ["StepReport", "StepReport", "RunResult"]


def test_the_pause_before_a_try_has_a_name_of_its_own_in_every_attempt() -> None:
    names = [pause_name("charge", attempt, number) for attempt in (1, 2) for number in (2, 3)]
    assert names[0] == "charge (before try 2)" and len(set(names)) == 4


@pytest.mark.parametrize("letter", ["x", "ü", "🦆"])
def test_the_pause_of_a_step_with_a_long_name_has_one_that_the_gateway_takes_and_that_is_its_own(letter: str) -> None:
    long = letter * (250 // len(letter.encode()))
    names = [pause_name(long + last, 1, 12) for last in ("a", "b")]
    assert all(len(name.encode()) <= 256 and name.endswith(" (before try 12)") for name in names)
    assert names[0] != names[1]
