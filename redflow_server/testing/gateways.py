"""Gateways on one embedded store, in a thread of their own, so that tests may use any loop, or none."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from redflow_sdk import Client, Worker
from redflow_sdk.workflow import AnyWorkflow
from redflow_server.config import Config
from redflow_server.embedded import EmbeddedStore, EmbeddedStoreError
from redflow_server.gateway import Gateway

__all__ = ["EmbeddedGateways", "EmbeddedStoreError", "RunningGateway"]

T = TypeVar("T")

DRAIN_GRACE_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway, as the fixtures `redflow` and `redflow_gateway` give it."""

    target: str
    """Where it listens: `host:port`."""

    def client(self) -> Client:
        """A client of it, to be used with `async with`. For one with a codec, say, there is
        `Client(redflow.target, codec=...)`.
        """
        return Client(self.target)

    def worker(self, *workflows: AnyWorkflow) -> Worker:
        """A worker of it with these workflows: `async with` starts it, and drains it at the end. For one with other
        settings there is `Worker(redflow.target, workflows=[...], ...)`.
        """
        return Worker(self.target, workflows=workflows)


class EmbeddedGateways:
    """The store, and the thread for gateways on it. To be opened in the main thread, with which the store ends."""

    def __init__(self) -> None:
        self._store = EmbeddedStore()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="redflow-gateways", daemon=True)

    def open(self) -> None:
        """Raises EmbeddedStoreError."""
        self._store.start()
        self._thread.start()

    def close(self) -> None:
        """Ends both."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._store.stop()

    @contextmanager
    def running(self) -> Iterator[RunningGateway]:
        """A gateway with a prefix of its own."""
        prefix = f"test-{secrets.token_hex(6)}"
        gateway = self._run(_started(Config(self._store.url, prefix, port=0, drain_grace_ms=DRAIN_GRACE_MS)))
        try:
            yield RunningGateway(f"127.0.0.1:{gateway.port}")
        finally:
            self._run(gateway.stop())

    def _run(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _started(config: Config) -> Gateway:
    gateway = Gateway(config)
    await gateway.start()
    return gateway
