"""What is to be seen of a scenario, on a real gateway and inline, without what differs each time: ids and times."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass

from redflow_sdk import Client, Failure, Run, Step
from redflow_sdk.testing import run_inline
from redflow_sdk.testing._world import ENDS
from redflow_sdk.workflow import AnyWorkflow
from tests.eventually import eventually
from tests.testing.scenario import Scenario, begin_play, calls, handed_over


@dataclass(frozen=True)
class SeenFailure:
    type: str
    message: str
    kind: str
    details: object
    cause: SeenFailure | None


@dataclass(frozen=True)
class SeenStep:
    name: str
    kind: str
    status: str
    attempt: int
    tries: int
    output: object
    failure: SeenFailure | None
    is_retrying: bool


@dataclass(frozen=True)
class SeenRun:
    workflow: str
    status: str
    attempt: int
    max_attempts: int
    input: object
    output: object
    failure: SeenFailure | None
    failure_handler: str
    has_parent: bool


@dataclass(frozen=True)
class Seen:
    """`result` is what the caller gets, or the exception; `calls` how often functions were called."""

    run: SeenRun
    result: str
    steps: tuple[SeenStep, ...]
    started: tuple[SeenRun, ...]
    calls: dict[str, int]


async def inline(scenario: Scenario) -> Seen:
    begin_play()
    result = await run_inline(
        scenario.workflow,
        scenario.input,
        workflows=scenario.others,
        events=scenario.events,
        tokens=scenario.tokens,
    )
    try:
        said = repr(result.output)
    except Exception as error:
        said = _said(error)
    return _seen(result.run, said, result.steps, result.started)


async def on_gateway(scenario: Scenario, client: Client) -> Seen:
    """By workers that serve its workflows."""
    begin_play()
    handle = await client.start(scenario.workflow, scenario.input)
    around = [asyncio.create_task(_emit(scenario, client)), asyncio.create_task(_complete(scenario, client))]
    try:
        said = repr(await handle.result(timeout=20))
    except Exception as error:
        said = _said(error)
    await asyncio.gather(*around)
    await eventually(lambda: _all_ended(client), within=10)
    steps = await client.get_run_steps(handle.id)
    others = [await client.get_run(run.id) async for run in client.list_runs() if run.id != handle.id]
    return _seen(await handle.get(), said, steps, others)


def _said(error: Exception) -> str:
    """Without where the traceback is to be found, or the traceback itself."""
    return f"{type(error).__name__}: {error.args[0]}"


async def _emit(scenario: Scenario, client: Client) -> None:
    for event in scenario.events:
        await asyncio.sleep(event.after)
        await client.emit_event(event.name, event.payload, key=event.key)


async def _complete(scenario: Scenario, client: Client) -> None:
    for given in scenario.tokens.values():
        token = await handed_over()
        await asyncio.sleep(0.1)  # its handler goes on meanwhile
        if isinstance(given, Exception):
            await client.fail_token(token, str(given), type=type(given).__name__)
        else:
            await client.complete_token(token, given)


async def _all_ended(client: Client) -> bool:
    return all([run.status in ENDS async for run in client.list_runs()])


def _seen(run: Run, said: str, steps: Iterable[Step], others: Iterable[Run]) -> Seen:
    return Seen(
        run=_run(run),
        result=_without_ids(said),
        steps=tuple(sorted(map(_step, steps), key=lambda step: step.name)),
        started=tuple(sorted(map(_run, others), key=repr)),
        calls=dict(calls),
    )


def _run(run: Run) -> SeenRun:
    return SeenRun(
        *(run.workflow, run.status, run.attempt, run.max_attempts, run.input, run.output),
        *(_failure(run.failure), run.failure_handler, bool(run.parent_run_id)),
    )


def _step(step: Step) -> SeenStep:
    output = _without_ids(repr(step.output))
    return SeenStep(
        *(step.name, step.kind, step.status, step.attempt, step.tries, output),
        *(_failure(step.failure), step.is_retrying),
    )


def _failure(failure: Failure | None) -> SeenFailure | None:
    if failure is None:
        return None
    return SeenFailure(
        *(failure.type, _without_ids(failure.message), failure.kind, failure.details),
        _failure(failure.cause),
    )


def _without_ids(text: str) -> str:
    return re.sub(r"run_[a-z0-9]+", "run_ID", text)


def workflows_of(scenario: Scenario) -> tuple[AnyWorkflow, ...]:
    return (scenario.workflow, *scenario.others)
