"""Scripts about the registry, the sessions of workers, and the prefix itself."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Sequence
from typing import Final

from redflow_server.domain.registry import Assertion, Registered, Registration, Workflow
from redflow_server.domain.runs import Stats
from redflow_server.domain.states import RunStatus
from redflow_server.domain.workers import Worker
from redflow_server.store import codec, codec_registry, replies
from redflow_server.store.calls.scripted import Scripted
from redflow_server.store.refusals import TRY_WRITE
from redflow_server.store.wire import Argument

STALE_MS: Final = 30_000
FORMAT: Final = 1
"""Version of what the keys hold."""


class RegistryScripts(Scripted):
    """Registering workflows, announcing sessions."""

    def register(self, registration: Registration) -> Future[Registered]:
        """Registers the whole set of an owner's workflows."""
        arguments: list[Argument] = [self._now, registration.owner, registration.build_id, STALE_MS]
        for definition in registration.workflows:
            arguments += codec_registry.encode_registration(definition, registration.schedules)
        names = [definition.name for definition in registration.workflows]
        return self._pipeline.call("register", arguments, lambda reply: replies.registered(names, reply))

    def assert_registry(self, assertions: Iterable[Assertion]) -> Future[tuple[bool, ...]]:
        """Keeps definitions from going stale; True for each that has to be registered again."""
        arguments: list[Argument] = [self._now, STALE_MS]
        for one in assertions:
            arguments += (one.owner, one.build_id, one.name, one.digest)
        return self._pipeline.call(
            "assert_registry", arguments, lambda reply: tuple(answer == b"needed" for answer in reply)
        )

    def read_workflows(self, names: Sequence[str]) -> Future[tuple[Workflow | None, ...]]:
        """Registry entries by name; None for one that is not registered."""
        return self._pipeline.call("read_workflows", (self._now, *names), replies.workflows)

    def list_workflows(self) -> Future[tuple[str, ...]]:
        """The names of all registered workflows, in order."""
        return self._pipeline.call("list_workflows", (self._now,), lambda reply: tuple(sorted(map(codec.text, reply))))

    def announce_sessions(self, workers: Iterable[Worker], keep_ms: int) -> Future[int]:
        """Keeps the descriptions of live sessions for listings; how many there are of all gateways."""
        arguments: list[Argument] = [self._now, keep_ms]
        for worker in workers:
            arguments += (worker.session_id, codec_registry.encode_worker(worker))
        return self._pipeline.call("announce_sessions", arguments, int)

    def forget_session(self, session_id: str) -> Future[None]:
        """Removes a session from the listings."""
        return self._pipeline.call("forget_session", (self._now, session_id), lambda _: None)

    def read_sessions(self) -> Future[tuple[Worker, ...]]:
        """The live sessions of all gateways."""
        return self._pipeline.call(
            "read_sessions", (self._now,), lambda reply: tuple(map(codec_registry.decode_worker, reply))
        )

    def claim_prefix(self) -> Future[None]:
        """Takes the prefix for this engine. Raises PrefixTaken."""
        return self._pipeline.call("claim_prefix", (self._now, FORMAT), replies.prefix_claimed)

    def try_write(self) -> Future[None]:
        """Changes nothing: it is refused as a start would be."""
        return self._pipeline.call(TRY_WRITE, (self._now,), lambda _: None)

    def read_stats(self) -> Future[Stats]:
        """Counts of runs and depths of lanes."""
        return self._pipeline.call("read_stats", (self._now, *RunStatus), replies.stats)
