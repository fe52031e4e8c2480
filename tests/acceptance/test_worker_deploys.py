"""What deploys cost: workers that are told to end, restarted, and replaced by others. With real processes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from redflow_sdk import Client, RunHandle
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway
from tests.cli.command import Command, spawn
from tests.conftest import StartGateway
from tests.eventually import eventually

MODULE = "tests.acceptance.processes.deployed"
QUEUE = "deployed"
LEASE_S = 30.0
SOON_S = 10.0
"""Far less than a lease: whatever happens within it did not wait for one to end."""
STARTS_WITHIN_S = 20.0

Deploy = Callable[..., Awaitable[Command]]


@pytest_asyncio.fixture
async def gateway(start_gateway: StartGateway) -> Gateway:
    """With the lease of production."""
    return await start_gateway(timing=Timing(lease_ms=int(LEASE_S * 1000)))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


@pytest_asyncio.fixture
async def deploy(target: str, journal: Path) -> AsyncIterator[Deploy]:
    """Starts workers, and returns when they are connected; none outlives the test."""
    commands: list[Command] = []

    async def start(*arguments: str, what: str = "") -> Command:
        command = await spawn(
            *("worker", "run", f"{MODULE}:{what}", "--target", target, *arguments),
            env={"REDFLOW_TEST_JOURNAL": str(journal)},
        )
        commands.append(command)
        assert await command.error_line("connected to")
        return command

    yield start
    for command in commands:
        if command.is_running:
            command.process.kill()
        await command.end()


async def at_work(client: Client, journal: Path) -> RunHandle[object]:
    """A run of one attempt whose handler waits for its release."""
    handle = await client.start("patient", queue=QUEUE)
    await eventually(lambda: "at work" in lines(journal), within=STARTS_WITHIN_S)
    assert (await handle.get()).max_attempts == 1
    return handle


async def ended_well(command: Command) -> str:
    """The log of a command that ended with 0."""
    ended = await command.end()
    assert ended.code == 0
    assert "Traceback" not in ended.err
    return ended.err


# ---- one worker ends ----


async def test_a_worker_finishes_what_it_has_within_the_grace_and_takes_nothing_new(
    client: Client, deploy: Deploy, journal: Path
) -> None:
    worker = await deploy("--drain-grace", "30", what="patient")
    handle = await at_work(client, journal)
    worker.send(signal.SIGTERM)
    assert await worker.error_line("draining: 1 runs at work have 30 s to finish")
    late = await client.start("patient", queue=QUEUE)
    journal.with_name("release").touch()
    await ended_well(worker)
    run = await handle.get()
    assert (run.status, run.output, run.delivery_count, run.losses) == ("succeeded", "done", 1, 0)
    assert (await late.get()).status == "queued"


async def test_what_does_not_finish_in_the_grace_goes_on_elsewhere_without_a_lease_to_wait_for(
    client: Client, deploy: Deploy, journal: Path
) -> None:
    first = await deploy("--drain-grace", "0.3", what="patient")
    handle = await at_work(client, journal)
    await deploy(what="patient")
    told_at = time.monotonic()
    first.send(signal.SIGTERM)
    await eventually(lambda: lines(journal).count("at work") == 2, within=SOON_S)
    assert time.monotonic() - told_at < SOON_S < LEASE_S
    await ended_well(first)
    journal.with_name("release").touch()
    assert await handle.result(timeout=SOON_S) == "done"
    run = await handle.get()
    assert (run.attempt, run.delivery_count, run.losses) == (1, 2, 0)
    assert lines(journal) == ["first step", "at work", "at work", "last step"], "no step was run again"


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_hands_everything_back_at_once(
    second: signal.Signals, client: Client, deploy: Deploy, journal: Path
) -> None:
    worker = await deploy("--drain-grace", "600", what="patient")
    handle = await at_work(client, journal)
    worker.send(signal.SIGTERM)
    assert await worker.error_line("draining")
    told_at = time.monotonic()
    worker.send(second)
    assert "a second signal: handing back what is not finished" in await ended_well(worker)
    assert time.monotonic() - told_at < 5
    run = await handle.get()
    assert (run.status, run.attempt, run.losses) == ("queued", 1, 0)


# ---- many runs end with it ----


@pytest.mark.parametrize("early_s", [-0.03, 0.0, 0.03], ids=["before", "at", "after"])
async def test_500_handlers_that_finish_as_the_signal_comes_have_their_results_recorded(
    early_s: float, client: Client, deploy: Deploy, journal: Path
) -> None:
    worker = await deploy("--concurrency", "500", what="punctual")
    handles = await asyncio.gather(*(client.start("punctual", number, queue=QUEUE) for number in range(500)))

    await eventually(lambda: len(lines(journal)) == 500, within=STARTS_WITHIN_S)
    moment = time.time() + 0.5
    new = journal.with_name("moment.new")
    new.write_text(str(moment))
    new.rename(journal.with_name("moment"))
    await asyncio.sleep(max(0.0, moment + early_s - time.time()))  # the moment is what the test is about
    worker.send(signal.SIGTERM)
    await ended_well(worker)
    runs = await asyncio.gather(*(handle.get() for handle in handles))
    assert [(run.status, run.output) for run in runs] == [("succeeded", number) for number in range(500)]
    assert {(run.attempt, run.delivery_count, run.losses) for run in runs} == {(1, 1, 0)}


# ---- a roll ----


async def test_five_rolling_restarts_cost_a_run_of_one_attempt_nothing(
    client: Client, deploy: Deploy, journal: Path
) -> None:
    worker = await deploy("--drain-grace", "0.1", what="patient")
    handle = await at_work(client, journal)
    for restarts in range(1, 6):
        following = await deploy("--drain-grace", "0.1", what="patient")
        worker.send(signal.SIGTERM)
        await ended_well(worker)
        await eventually(lambda count=restarts + 1: lines(journal).count("at work") == count, within=SOON_S)
        worker = following
    journal.with_name("release").touch()
    assert await handle.result(timeout=SOON_S) == "done"
    run = await handle.get()
    assert (run.status, run.attempt, run.max_attempts, run.losses, run.delivery_count) == ("succeeded", 1, 1, 0, 6)
    assert lines(journal) == ["first step", *["at work"] * 6, "last step"]


async def test_during_a_roll_what_only_the_new_release_knows_waits_for_it_and_the_rest_goes_on(
    client: Client, deploy: Deploy
) -> None:
    old = await deploy("--name", "old", what="old_release")
    new = await client.start("newcomer", queue=QUEUE)
    assert await (await client.start("brief", queue=QUEUE)).result(timeout=SOON_S) == "brief"
    run = await new.get()
    assert run.status == "queued"
    assert [waiting.kind for waiting in run.waiting_for] == ["no_worker"]
    await deploy("--name", "new", what="new_release")
    assert await new.result(timeout=SOON_S) == "new"
    assert await (await client.start("brief")).result(timeout=SOON_S) == "brief"
    old.send(signal.SIGTERM)
    await ended_well(old)
    assert await (await client.start("brief")).result(timeout=SOON_S) == "brief"
    assert ((await new.get()).attempt, (await new.get()).losses) == (1, 0)
