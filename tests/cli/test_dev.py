"""`redflow dev`: everything in one command, and nothing left of it afterwards."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from redflow_sdk import Client
from redflow_server.cli.exit_codes import ExitCode
from tests.cli.command import PROGRAM, Command, processes_in, redflow
from tests.cli.conftest import Start
from tests.eventually import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@dataclass(frozen=True)
class Addresses:
    """What it says when it is ready."""

    gateway: str
    store: str
    data: str

    @property
    def socket(self) -> Path:
        return Path(self.store.removeprefix("unix://"))


async def ready(command: Command) -> Addresses:
    return Addresses(**json.loads(await command.line()))


def arguments(data: Path, *more: str) -> tuple[str, ...]:
    return ("dev", "--data-dir", str(data), "--port", "0", "-o", "json", *more)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
async def test_it_serves_until_a_signal_and_leaves_nothing_behind(
    number: signal.Signals, tmp_path: Path, start: Start
) -> None:
    command = await start(*arguments(tmp_path / "data"))
    addresses = await ready(command)
    async with Client(addresses.gateway) as client:
        assert (await (await client.start("w", queue="q")).get()).status == "queued"
    assert processes_in(tmp_path / "data")

    command.send(number)
    ended = await command.end()
    assert (ended.code, ended.out, ended.err) == (ExitCode.OK, "", "")
    assert not processes_in(tmp_path / "data")
    assert not addresses.socket.parent.exists()


async def test_without_stdin_and_stderr_it_ends_as_well(tmp_path: Path, start: Start) -> None:
    program = ("sh", "-c", 'exec "$@" <&- 2>&-', "sh", *PROGRAM)
    command = await start(*arguments(tmp_path / "data"), program=program)
    await ready(command)
    command.send(signal.SIGTERM)
    assert (await command.end()).code == ExitCode.OK
    assert not processes_in(tmp_path / "data")


async def test_runs_are_kept_in_the_directory(tmp_path: Path, start: Start) -> None:
    command = await start("dev", "--port", "0", cwd=tmp_path)
    target = (await command.line()).split()[1]
    async with Client(target) as client:
        handle = await client.start("w", queue="q")
    command.send(signal.SIGTERM)
    assert (await command.end()).code == ExitCode.OK

    again = await start(*arguments(tmp_path / ".redflow"))
    async with Client((await ready(again)).gateway) as client:
        assert (await client.get_run(handle.id)).status == "queued"


async def test_a_signal_during_its_start_leaves_no_store(tmp_path: Path, start: Start) -> None:
    data = tmp_path / "data"
    command = await start(*arguments(data))
    await eventually((data / "store.log").exists, every=0.001, within=10)
    command.send(signal.SIGTERM)
    assert (await command.end()).code == ExitCode.OK
    assert not processes_in(data)


async def test_the_store_ends_with_a_killed_gateway_and_its_data_can_be_used_again(
    tmp_path: Path, start: Start
) -> None:
    command = await start(*arguments(tmp_path / "data"))
    await ready(command)
    [store] = processes_in(tmp_path / "data")
    command.process.kill()
    await command.end()
    await eventually(lambda: store not in processes_in(tmp_path / "data"))

    again = await start(*arguments(tmp_path / "data"))
    assert await ready(again)


async def test_a_directory_is_used_by_one_at_a_time(tmp_path: Path, start: Start) -> None:
    first = await start(*arguments(tmp_path / "data"))
    await ready(first)
    ended = await redflow(*arguments(tmp_path / "data"))
    assert ended.code == ExitCode.REFUSED
    assert "another process uses the data" in ended.error
    assert len(processes_in(tmp_path / "data")) == 1


async def test_a_port_in_use_ends_it_and_its_store(tmp_path: Path, start: Start) -> None:
    first = await ready(await start(*arguments(tmp_path / "first")))
    port = first.gateway.rpartition(":")[2]
    ended = await redflow("dev", "--data-dir", tmp_path / "second", "--port", port)
    assert ended.code == ExitCode.REFUSED
    assert f"cannot listen on 127.0.0.1:{port}" in ended.error
    assert not processes_in(tmp_path / "second")


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = await redflow(*arguments(tmp_path / "file" / "below"))
    assert ended.code == ExitCode.REFUSED
    assert str(tmp_path / "file" / "below") in ended.error


async def test_tools_can_ask_it_for_its_services(tmp_path: Path, start: Start) -> None:
    addresses = await ready(await start(*arguments(tmp_path / "data")))
    async with grpc.aio.insecure_channel(addresses.gateway) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        async for answer in call:
            names = {service.name for service in answer.list_services_response.service}
    assert "redflow.api.v1.RunService" in names
