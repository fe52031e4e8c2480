"""How `redflow worker run` ends, and with which exit code: by signals, and when a gateway will not have it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redflow_sdk import Client
from redflow_server.cli.exit_codes import ExitCode
from tests.cli.command import PROGRAM
from tests.cli.conftest import Start
from tests.eventually import eventually
from tests.sdk.messages import session_error
from tests.sdk.scripted_gateway import ScriptedGateway, Times

FLOWS = """
from redflow_sdk import Context, workflow

@workflow(name="quick", queue="cli")
async def quick(ctx: Context) -> str:
    return "done"
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(FLOWS)
    return tmp_path


@pytest.fixture
def scripted() -> Iterator[ScriptedGateway]:
    """A gateway that does what a test says."""
    gateway = ScriptedGateway(Times(), max_payload_bytes=1024)
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_each_signal_that_asks_for_the_end_drains(
    number: signal.Signals, app: Path, target: str, start: Start
) -> None:
    command = await start("worker", "run", "shop", "--target", target, cwd=app)
    assert await command.error_line("connected to")
    command.send(number)
    assert await command.error_line("disconnected from")
    assert (await command.end()).code == ExitCode.OK


async def test_under_nohup_a_worker_outlives_its_terminal(app: Path, target: str, client: Client, start: Start) -> None:
    command = await start("worker", "run", "shop", "--target", target, cwd=app, program=("nohup", *PROGRAM))
    assert await command.error_line("connected to")
    command.send(signal.SIGHUP)
    assert await (await client.start("quick", queue="cli")).result(timeout=10) == "done"
    command.send(signal.SIGTERM)
    assert (await command.end()).code == ExitCode.OK


async def test_a_second_signal_does_not_wait_for_a_gateway_that_is_silent(
    app: Path, scripted: ScriptedGateway, start: Start
) -> None:
    scripted.script.drain = lambda: None
    command = await start("worker", "run", "shop", "--target", scripted.target, cwd=app)
    assert await command.error_line("connected to")
    command.send(signal.SIGTERM)
    await eventually(scripted.log.drains, within=10)
    told_at = time.monotonic()
    command.send(signal.SIGTERM)
    ended = await command.end()
    assert ended.code == ExitCode.OK
    assert time.monotonic() - told_at < 4, "it would have waited for 5 s"


@pytest.mark.parametrize("reason", ["REVISION_UNSUPPORTED", "SESSION_SUPERSEDED", "INVALID_INPUT"])
async def test_a_worker_that_is_refused_for_good_says_why_and_ends_with_1(
    reason: str, app: Path, scripted: ScriptedGateway, start: Start
) -> None:
    scripted.script.open = lambda opening: session_error(reason, permanent=True)
    command = await start("worker", "run", "shop", "--target", scripted.target, cwd=app)
    ended = await command.end()
    assert ended.code == ExitCode.REFUSED
    assert ended.err.splitlines()[-1].startswith(f"redflow: the gateway at {scripted.target} refuses the worker: ")
    assert "Traceback" not in ended.err
