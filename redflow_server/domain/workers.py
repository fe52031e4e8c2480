"""Connected workers, as listings show them."""

from __future__ import annotations

from dataclasses import dataclass

from redflow_server.domain.session import SdkInfo


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker's session on some gateway."""

    session_id: str
    gateway_id: str
    worker_name: str
    owner: str
    instance_id: str
    build_id: str
    sdk: SdkInfo
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    slot_limit: int
    leases: int
    is_draining: bool
    connected_at_ms: int
    parked: int = 0
    """Of the leases those whose handlers wait in its memory, without a slot."""

    def serves(self, queue: str, workflow: str) -> bool:
        """Whether it takes runs of the workflow from the queue."""
        return queue in self.queues and workflow in self.workflows
