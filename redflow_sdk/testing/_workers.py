"""Executing runs: for each workflow the worker side of the SDK itself, on the loop of the caller, without a wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from redflow_sdk._around import Around
from redflow_sdk._crew import Crew
from redflow_sdk._execution import Surroundings
from redflow_sdk._leases import Unanswered
from redflow_sdk._messages import Answer, Assignment, Item, Resolution, StepSnapshot, Stop
from redflow_sdk._opening import Definition, Opened, Opening, Timing
from redflow_sdk._parking import ParkingRules, Waiting
from redflow_sdk._protocol import WorkerProtocol
from redflow_sdk._retries import Rest
from redflow_sdk._sealing import Sealing
from redflow_sdk.testing._starts import MAX_RUNS
from redflow_sdk.workflow import AnyWorkflow

MAX_PAYLOAD_BYTES: Final = 1024 * 1024
CANCEL_GRACE_S: Final = 1.0
"""How long a handler that has to stop may take, in real time."""
TIMING: Final = Timing(
    lease_s=3600.0, heartbeat_s=3600.0, fence_margin_s=0.0, silence_s=3600.0, cancel_grace_s=CANCEL_GRACE_S
)


class InlineWorker:
    """The worker of one workflow. `answer` is the gateway: it applies an item, and answers it.

    A handler that waits always ends, and runs again from its start when the wait is over.
    """

    def __init__(self, workflow: AnyWorkflow, answer: Callable[[Item], Answer], around: Around, rest: Rest) -> None:
        self._workflow = workflow
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        replay = ParkingRules(window_s=0.0, limit=0, waiting=Waiting.REPLAY)
        surroundings = Surroundings(Sealing(None, "worker"), around, rest)
        self._crew = Crew({workflow.name: workflow}, MAX_RUNS, replay, self._loop, surroundings)
        self._protocol = WorkerProtocol(_opening(workflow), self._crew)
        self._crew.connect(self._protocol)
        opened = Opened(TIMING, MAX_PAYLOAD_BYTES, problems=(), lost=(), finished=(), stops=())
        self._protocol.session_opened(self, opened, ())

    # ---- for the gateway ----

    @property
    def workflow(self) -> AnyWorkflow:
        """The workflow whose runs it executes."""
        return self._workflow

    def assign(self, assignment: Assignment) -> None:
        """A run to execute."""
        self._loop.call_soon(self._protocol.take, (assignment,))

    def stop(self, stop: Stop) -> None:
        """A handler that has to end."""
        self._loop.call_soon(self._protocol.stop, (stop,))

    def resolve(self, token: str, step: StepSnapshot) -> None:
        """A wait of a run that it has is over."""
        self._loop.call_soon(self._protocol.resolve, (Resolution(token, step),))

    def has(self, token: str) -> bool:
        """Whether it still has the lease."""
        return any(held.lease_token == token for held in self._protocol.inventory())

    async def close(self) -> None:
        """Aborts what is at work."""
        await self._crew.abort()
        self._crew.close()

    # ---- for the worker: the line to its gateway ----

    def send(self, entry: Unanswered) -> None:
        """Sends an item, which is answered in a later turn of the loop."""
        self._loop.call_soon(self._protocol.answer, entry.request_id, self._answer(entry.item))

    def tell_capacity(self) -> None:
        """There is room for every run of a play."""

    def drain(self) -> None:
        """Nothing is assigned that the play does not wait for."""

    async def fetch(self, token: str, step_name: str) -> StepSnapshot | None:
        """Every step goes along with its assignment."""
        return None

    async def fetch_all(self, token: str) -> tuple[StepSnapshot, ...]:
        """Every step goes along with its assignment."""
        return ()


def _opening(workflow: AnyWorkflow) -> Opening:
    definition = Definition(
        *(workflow.name, workflow.digest, workflow.queue, workflow.max_attempts, workflow.retry, workflow.events),
        *(workflow.run_timeout, workflow.start_timeout),
    )
    return Opening(
        owner="inline",
        worker_name="inline",
        instance_id="inline",
        build_id="inline",
        queues=(),
        definitions=(definition,),
        slot_limit=MAX_RUNS,
        session_number=0,
        held=(),
    )
