"""A run that kills its worker takes none of those down that share the worker with it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from redflow_sdk import Client, RunFailedError
from redflow_server.domain.timing import Timing
from tests.cli.command import Command, spawn
from tests.conftest import StartGateway
from tests.eventually import eventually

MODULE = "tests.acceptance.processes.poison"
SLOTS = 50
MAX_LOSSES = 2
WITHIN_S = 60.0


class Supervisor:
    """Starts the worker whenever it has ended, as systemd or Kubernetes do."""

    def __init__(self, target: str, journal: Path) -> None:
        self._command: Command | None = None
        self._target, self._journal = target, journal

    async def keep(self) -> None:
        """Until it is canceled."""
        while True:
            self._command = await spawn(
                *("worker", "run", MODULE, "--target", self._target, "--concurrency", str(SLOTS)),
                env={"REDFLOW_TEST_JOURNAL": str(self._journal)},
            )
            await self._command.end()

    async def stop(self) -> None:
        """The worker does not outlive the test."""
        if self._command is not None and self._command.is_running:
            self._command.process.kill()
            await self._command.end()


async def test_49_long_runs_without_steps_outlive_the_one_that_kills_their_worker(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = await start_gateway(timing=Timing(lease_ms=1000), max_losses=MAX_LOSSES)
    target, journal = f"127.0.0.1:{gateway.port}", tmp_path / "journal"
    supervisor = Supervisor(target, journal)
    keeping = asyncio.create_task(supervisor.keep())
    try:
        async with Client(target) as client:
            before = [await client.start("long", n, queue="poison") for n in range(20)]
            killer = await client.start("poison", queue="poison")
            after = [await client.start("long", n, queue="poison") for n in range(20, SLOTS - 1)]
            innocent = before + after

            async def has_one_left() -> bool:
                return (await killer.get()).losses == MAX_LOSSES

            await eventually(has_one_left, within=WITHIN_S)
            assert max([(await handle.get()).losses for handle in innocent]) == MAX_LOSSES, "they were beside it"
            (tmp_path / "release").touch()
            outputs = await asyncio.gather(*(handle.result(timeout=WITHIN_S) for handle in innocent))
            with pytest.raises(RunFailedError) as failed:
                await killer.result(timeout=WITHIN_S)
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        await supervisor.stop()
    assert outputs == list(range(SLOTS - 1))
    assert failed.value.failure.kind == "worker_lost"
