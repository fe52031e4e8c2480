"""Workers, and what users put around their work: middleware and codecs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, assert_type

from redflow_sdk import (
    CallNext,
    Client,
    FailureContext,
    Middleware,
    PayloadCodec,
    RunInfo,
    StartInfo,
    StepInfo,
    SyncClient,
    Worker,
    WorkerHealth,
)
from redflow_sdk.workflow import AnyWorkflow
from tests.typing.definitions import charge, load, resize, send, sweep, tidy


class Trace(Middleware):
    def start(self, start: StartInfo) -> None:
        assert_type(start.headers, dict[str, str])
        assert_type(start.kind, Literal["run", "event"])
        start.headers["trace"] = start.name

    async def run(self, run: RunInfo, call_next: CallNext) -> object:
        assert_type(run.headers, Mapping[str, str])
        output = await call_next()
        assert_type(output, object)
        return output

    async def failure_handler(self, failure: FailureContext, call_next: CallNext) -> object:
        assert_type(failure.run, RunInfo)
        return await call_next()

    async def step(self, step: StepInfo, call_next: CallNext) -> object:
        assert_type(step.tries, int)
        assert_type(step.run, RunInfo)
        return await call_next()


class Reversed:
    name = "reversed"

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


class Keyed:
    """One whose name is its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


codecs: list[PayloadCodec] = [Reversed(), Keyed("a")]
Client(codec=Reversed(), middleware=[Trace()])
SyncClient(codec=Keyed("a"), middleware=(Trace(),))
Worker(workflows=[send], codec=Reversed(), middleware=[Trace()])


flows: list[AnyWorkflow] = [charge, sweep, resize, tidy]
Worker(workflows=flows)


async def works() -> None:
    worker = Worker("localhost:7379", workflows=[charge, sweep, resize, tidy], concurrency=50, park_window=10)
    async with worker as same:
        assert_type(same, Worker)
    assert_type(worker.health, WorkerHealth)
    await worker.drain(grace=5)
    await worker.stop()
    await worker.run()


class Forgetful:
    name = "forgetful"

    def encode(self, data: bytes) -> str:
        return str(data)

    def decode(self, data: bytes) -> bytes:
        return data


class Wrong(Middleware):
    async def run(self, run: RunInfo) -> object:  # type: ignore[override]  # pyright: ignore  # calls nothing
        return None


def misuses() -> None:
    Worker(workflows=[load])  # type: ignore[list-item]  # pyright: ignore  # no workflow
    Worker(workflows=[charge], concurrency="many")  # type: ignore[arg-type]  # pyright: ignore  # no int
    Worker(workflows=[charge], middleware=[print])  # type: ignore[list-item]  # pyright: ignore  # no middleware
    Client(codec="reversed")  # type: ignore[arg-type]  # pyright: ignore  # no codec
    Client(codec=Forgetful())  # type: ignore[arg-type]  # pyright: ignore  # encodes as text
