"""The units and manifests of the page on deployment start commands that there are, and leave them the time to drain."""

from __future__ import annotations

import argparse
import configparser
import json
import re
import shlex
from dataclasses import dataclass

import pytest

from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.cli import server, worker
from redflow_server.cli.arguments import Parser
from redflow_server.cli.probes import PROBES
from tests.tidy.source_files import ROOT

PAGE = (ROOT / "docs" / "deployment.md").read_text()
AFTER_GRACE_S = 10.0
"""What a command may need when its grace is over."""


@dataclass(frozen=True)
class Started:
    """A command of the page, and for how long who started it waits for its end."""

    where: str
    command: tuple[str, ...]
    patience_s: float


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def _units() -> dict[str, configparser.ConfigParser]:
    units = {}
    for block in _blocks("ini"):
        unit = configparser.ConfigParser(interpolation=None)
        unit.read_string(block)
        units[block.splitlines()[0].removeprefix("# ")] = unit
    return units


def _started_by_systemd() -> list[Started]:
    found = []
    for path, unit in _units().items():
        program, *command = shlex.split(unit["Service"]["ExecStart"])
        assert program.endswith("/bin/redflow")
        found.append(Started(path, tuple(command), float(unit["Service"]["TimeoutStopSec"])))
    return found


def _started_by_kubernetes() -> list[Started]:
    found = []
    for block in _blocks("yaml"):
        [arguments] = re.findall(r"^ +args: (\[.*?\])$", block, re.M | re.S)
        [patience] = re.findall(r"^ +terminationGracePeriodSeconds: (\d+)$", block, re.M)
        [name] = re.findall(r"^kind: Deployment\nmetadata:\n  name: (\S+)$", block, re.M)
        found.append(Started(name, tuple(json.loads(arguments)), float(patience)))
    return found


def _started_by_compose() -> list[Started]:
    text = (ROOT / "docker" / "compose.yaml").read_text()
    graces = [float(seconds) for seconds in re.findall(r"stop_grace_period: (\d+)s", text)]
    [command] = re.findall(r'command: (\["worker", .*\])', text)
    commands = [("server",), tuple(json.loads(command))]  # that of the image, and the worker's
    return [Started("compose.yaml", *both) for both in zip(commands, graces, strict=True)]


STARTED = [*_started_by_systemd(), *_started_by_kubernetes(), *_started_by_compose()]


def parsed(command: tuple[str, ...]) -> argparse.Namespace:
    """The arguments, as the command understands them. Raises CommandFailed."""
    parser = Parser(prog="redflow")
    {"server": server, "worker": worker}[command[0]].add_arguments(parser)
    return parser.parse_args(command[1:])


@pytest.mark.parametrize("started", STARTED, ids=lambda started: f"{started.where} {started.command[0]}")
def test_every_command_is_understood_and_is_given_more_time_than_its_grace(started: Started) -> None:
    assert started.patience_s >= parsed(started.command).drain_grace + AFTER_GRACE_S


def test_there_is_a_gateway_and_a_worker_for_each_who_starts_them() -> None:
    assert [started.command[0] for started in STARTED] == ["server", "worker"] * 3


def test_the_probes_of_the_manifest_are_answered_by_the_worker_that_it_starts() -> None:
    [manifest] = [block for block in _blocks("yaml") if '"worker"' in block]
    [started] = [it for it in _started_by_kubernetes() if it.command[0] == "worker"]
    asked = re.findall(r"httpGet: \{path: (\S+), port: (\d+)\}", manifest)
    assert {path for path, _ in asked} == {path.decode() for path in PROBES}
    ports = {int(port) for _, port in asked} | {int(port) for port in re.findall(r"containerPort: (\d+)", manifest)}
    assert ports == {parsed(started.command).health.port}


def test_the_probe_of_the_gateway_asks_for_a_service_that_there_is() -> None:
    [service] = re.findall(r"grpc: \{port: 7379, service: (\S+)\}", PAGE)
    assert service == worker_pb2.DESCRIPTOR.services_by_name["WorkerService"].full_name
