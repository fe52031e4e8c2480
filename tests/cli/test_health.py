"""`redflow health`: what the probes of containers and load balancers ask."""

from __future__ import annotations

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.gateway import Gateway
from tests.cli.command import redflow
from tests.cli.conftest import Run
from tests.eventually import eventually


async def _serves(at_gateway: Run) -> bool:
    return (await at_gateway("health")).code == ExitCode.OK


async def test_a_gateway_that_takes_workers_is_serving(gateway: Gateway, at_gateway: Run) -> None:
    await eventually(lambda: _serves(at_gateway), within=10)
    ended = await at_gateway("health")
    assert (ended.code, ended.out) == (ExitCode.OK, "serving\n")


async def test_a_gateway_that_drains_is_not(gateway: Gateway, at_gateway: Run) -> None:
    await gateway.drain()
    ended = await at_gateway("health")
    assert ended.code == ExitCode.UNAVAILABLE
    assert "takes no workers" in ended.err


async def test_nobody_there_is_said_in_one_line() -> None:
    ended = await redflow("health", "--target", "127.0.0.1:1", "--timeout", "1")
    assert ended.code == ExitCode.UNAVAILABLE
    assert ended.err.startswith("redflow: the gateway at 127.0.0.1:1 does not answer")
    assert ended.err.count("\n") == 1
