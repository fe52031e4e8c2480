"""Lanes as operators ask about them: what waits in each, and which workers serve it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from redflow_sdk import Stats, WorkerInfo, WorkflowInfo
from redflow_server.cli.client import Connection
from redflow_server.cli.output import say
from redflow_server.cli.worker_views import names_of, say_if_cut, worker_document

NO_WORKER = "no worker"


@dataclass(frozen=True, slots=True)
class Lane:
    """The runs of a workflow in a queue. `depth` is None when the gateway does not tell."""

    queue: str
    workflow: str
    depth: int | None
    workers: tuple[WorkerInfo, ...]

    @property
    def free_slots(self) -> int:
        """How many runs its workers would take now; they may take them from other lanes."""
        return sum(worker.free_slots for worker in self.workers)

    @property
    def served_by(self) -> str:
        """The workers by name, on one line."""
        return names_of(self.workers) or NO_WORKER

    def document(self) -> dict[str, object]:
        """It, for programs. The names of the fields are a promise."""
        return {
            "queue": self.queue,
            "workflow": self.workflow,
            "depth": self.depth,
            "is_served": bool(self.workers),
            "free_slots": self.free_slots,
            "workers": [worker.name for worker in self.workers],
        }


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue with its lanes, and the workers that serve any of them."""

    name: str
    lanes: tuple[Lane, ...]
    workers: tuple[WorkerInfo, ...]

    @property
    def depth(self) -> int:
        """The runs that wait in it, as far as the gateway tells."""
        return sum(lane.depth or 0 for lane in self.lanes)

    @property
    def free_slots(self) -> int:
        """How many runs its workers would take now; they may take them from other queues."""
        return sum(worker.free_slots for worker in self.workers)

    def document(self) -> dict[str, object]:
        """It, for programs. The names of the fields are a promise."""
        return {
            "name": self.name,
            "depth": self.depth,
            "slot_limit": sum(worker.slot_limit for worker in self.workers),
            "free_slots": self.free_slots,
            "lanes": [lane.document() for lane in self.lanes],
            "workers": list(map(worker_document, self.workers)),
        }


@dataclass(frozen=True, slots=True)
class Overview:
    """All that is known of queues at one time. `left_out` are lanes with runs of which the gateway does not tell."""

    workflows: tuple[WorkflowInfo, ...]
    workers: tuple[WorkerInfo, ...]
    stats: Stats

    @property
    def left_out(self) -> int:
        """Lanes with runs that the gateway leaves out."""
        return max(0, self.stats.lane_count - len(self.stats.lanes))

    def lanes(self) -> tuple[Lane, ...]:
        """The lanes with runs, and those of the registered workflows, by queue and workflow."""
        depths: dict[tuple[str, str], int | None]
        # A lane that is left out may be of any name: what is not told is not known to be empty.
        depths = {(workflow.queue, workflow.name): None if self.left_out else 0 for workflow in self.workflows}
        depths |= {(lane.queue, lane.workflow): lane.depth for lane in self.stats.lanes}
        return tuple(Lane(*where, depth, self._serving(*where)) for where, depth in sorted(depths.items()))

    def _serving(self, queue: str, workflow: str) -> tuple[WorkerInfo, ...]:
        return tuple(worker for worker in self.workers if worker.serves(queue, workflow))

    def queues(self) -> tuple[Queue, ...]:
        """The queues of the lanes, and those that workers serve, by name."""
        lanes = self.lanes()
        names = {lane.queue for lane in lanes} | {queue for worker in self.workers for queue in worker.queues}
        return tuple(
            Queue(
                name,
                tuple(lane for lane in lanes if lane.queue == name),
                tuple(worker for worker in self.workers if name in worker.queues),
            )
            for name in sorted(names)
        )

    def say_what_is_missing(self) -> None:
        """Tells on stderr what the gateway leaves out."""
        if self.left_out:
            told = len(self.stats.lanes)
            say(f"the gateway tells of the {told} lanes that filled last, and leaves out {self.left_out} with runs")
        say_if_cut(self.workers)


async def overview(connection: Connection) -> Overview:
    """What there is now. Raises CommandFailed when there is no answer in time."""
    client = connection.client
    answers = asyncio.gather(client.list_workflows(), client.list_workers(), client.stats())
    workflows, workers, stats = await connection.answer(answers)
    return Overview(tuple(workflows), tuple(workers), stats)
