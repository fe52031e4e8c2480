"""The embedded store is started from a process in which gRPC has threads, as a restart in `redflow dev` would."""

from __future__ import annotations

from pathlib import Path

from redflow_server.embedded import EmbeddedStore
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker


async def test_an_embedded_store_can_be_started_again_beside_a_gateway_that_serves(
    calls: Calls, open_worker: OpenWorker, tmp_path: Path
) -> None:
    worker = await open_worker("w")
    with EmbeddedStore(tmp_path / "data") as store:
        for _ in range(20):
            store.kill()
            store.start()
            await worker.quiet()
