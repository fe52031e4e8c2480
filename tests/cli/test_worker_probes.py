"""`redflow worker run --health`: what probes of a worker are answered, in each state of it, and whatever they send."""

from __future__ import annotations

import asyncio
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from redflow_sdk import Client, WorkerHealth
from redflow_server.cli import probes
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.listening import ListenAddress
from redflow_server.cli.probes import Probes, liveness, readiness
from redflow_server.gateway import Gateway
from tests.cli.command import Command, redflow
from tests.cli.conftest import Start
from tests.eventually import eventually

FLOWS = """
import asyncio, time
from redflow_sdk import Context, workflow

@workflow(name="wait", queue="cli")
async def wait(ctx: Context) -> None:
    await ctx.step.run("begun", str)
    await asyncio.Event().wait()

@workflow(name="block", queue="cli")
async def block(ctx: Context) -> None:
    await ctx.step.run("begun", str)
    time.sleep(600)
"""
ANSWERS_WITHIN_S = 10.0

Probe = Callable[[str], Awaitable[tuple[int, str]]]


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=ANSWERS_WITHIN_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(FLOWS)
    return tmp_path


async def probe_of(command: Command) -> Probe:
    """Asks a worker, when it says where."""
    said = await command.error_line("probes are answered at ")
    url = said.partition("probes are answered at ")[2]
    assert url.startswith("http://127.0.0.1:")
    return lambda path: asyncio.to_thread(_get, url + path)


# ---- a worker ----


async def test_it_is_ready_while_it_takes_runs_and_live_to_its_end(
    app: Path, target: str, client: Client, start: Start
) -> None:
    command = await start("worker", "run", "shop", "--target", target, "--health", "127.0.0.1:0", cwd=app)
    ask = await probe_of(command)
    assert await command.error_line("connected to")

    async def is_ready() -> bool:
        return await ask("/readyz") == (200, "ok\n")

    await eventually(is_ready)
    assert await ask("/livez") == (200, "ok\n")
    handle = await client.start("wait", queue="cli")
    await eventually(lambda: client.get_run_steps(handle.id), within=ANSWERS_WITHIN_S)
    command.send(signal.SIGTERM)
    assert await command.error_line("draining")
    assert await ask("/readyz") == (503, "the worker drains\n")
    assert await ask("/livez") == (200, "ok\n")
    command.send(signal.SIGTERM)
    assert (await command.end()).code == ExitCode.OK


async def test_without_a_gateway_it_is_live_and_not_ready(
    app: Path, gateway: Gateway, target: str, start: Start
) -> None:
    command = await start("worker", "run", "shop", "--target", target, "--health", "127.0.0.1:0", cwd=app)
    ask = await probe_of(command)
    assert await command.error_line("connected to")
    await gateway.stop()

    async def is_ready() -> bool:
        return (await ask("/readyz"))[0] == 200

    async def is_not_ready() -> bool:
        return not await is_ready()

    await eventually(is_not_ready)
    assert await ask("/readyz") == (503, "no session with a gateway is open\n")
    assert await ask("/livez") == (200, "ok\n")


async def test_a_handler_that_blocks_the_loop_makes_it_not_live_in_the_end_and_keeps_no_probe_waiting(
    app: Path, target: str, client: Client, start: Start
) -> None:
    command = await start("worker", "run", "shop", "--target", target, "--health", "127.0.0.1:0", cwd=app)
    ask = await probe_of(command)
    handle = await client.start("block", queue="cli")
    await eventually(lambda: client.get_run_steps(handle.id), within=ANSWERS_WITHIN_S)
    assert (await ask("/livez"))[0] == 200

    async def is_dead() -> bool:
        status, text = await ask("/livez")
        assert status == 200 or text.startswith("the event loops of the worker have not turned for 1")
        return status == 503

    await eventually(is_dead, within=2 * probes.STALLED_S, every=0.2)
    assert (await ask("/readyz"))[0] == 200, "its leases are kept"


@pytest.mark.parametrize(
    ("health", "live", "ready"),
    [
        (WorkerHealth(is_connected=False, is_draining=False, stalled_for=0.0), 200, 503),
        (WorkerHealth(is_connected=True, is_draining=False, stalled_for=9.9), 200, 200),
        (WorkerHealth(is_connected=True, is_draining=True, stalled_for=0.5), 200, 503),
        (WorkerHealth(is_connected=True, is_draining=False, stalled_for=10.1), 503, 200),
    ],
)
def test_each_probe_asks_for_one_thing(health: WorkerHealth, live: int, ready: int) -> None:
    assert (liveness(health).status, readiness(health).status) == (live, ready)


async def test_an_address_that_is_taken_is_refused_before_anything_runs(app: Path, gateway: Gateway) -> None:
    taken = f"127.0.0.1:{gateway.port}"
    ended = await redflow("worker", "run", "shop", "--health", taken, cwd=app)
    assert ended.code == ExitCode.REFUSED
    assert ended.last_error == f"cannot listen on {taken}: another program listens there"


@pytest.mark.parametrize("came", ["8080", ":8080", "localhost:", "localhost:65536", "::1:80", "a b:80", "a..b:80"])
async def test_an_address_has_to_name_its_host(came: str) -> None:
    ended = await redflow("worker", "run", "shop", "--health", came)
    assert ended.code == ExitCode.USAGE
    assert "must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080" in ended.error


# ---- a request ----


Ask = Callable[[bytes], Awaitable[bytes]]


@pytest_asyncio.fixture
async def ask() -> AsyncIterator[Ask]:
    """Sends bytes to the endpoint of a worker that is ready, and reads to the end of the connection."""
    ready = WorkerHealth(is_connected=True, is_draining=False, stalled_for=0.0)
    host, _, port = Probes(lambda: ready).open(ListenAddress("127.0.0.1", 0)).partition(":")
    writers: list[asyncio.StreamWriter] = []

    async def send(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        writers.append(writer)
        writer.write(request)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), ANSWERS_WITHIN_S)

    yield send
    for writer in writers:
        writer.close()


@pytest.mark.parametrize("target", [b"/livez", b"/readyz", b"/readyz?verbose", b"/livez?"])
async def test_a_probe_is_answered_and_the_connection_ends(ask: Ask, target: bytes) -> None:
    answer = await ask(b"GET " + target + b" HTTP/1.1\r\nHost: worker\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: text/plain; charset=utf-8",
        b"Content-Length: 3",
        b"Cache-Control: no-store",
        b"Connection: close",
    ]
    assert body == b"ok\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /livez/ HTTP/1.0\r\n\r\n", b"404 Not Found"),
        (b"GET /../livez HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"HEAD /livez HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"POST /livez HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000), b"405 Method Not Allowed"),
        (b"GET http://worker/livez HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /livez HTTP/2.0\r\n\r\n", b"400 Bad Request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400 Bad Request"),
        (b"GET /livez HTTP/1.1\r\n", b"400 Bad Request"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"431 Request Header Fields Too Large"),
    ],
    ids=lambda value: value[:24].decode(errors="replace"),
)
async def test_what_is_no_probe_is_refused(ask: Ask, request_: bytes, status: bytes) -> None:
    answer = await ask(request_)
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert (b"\r\nAllow: GET\r\n" in answer) == status.startswith(b"405")


async def test_who_says_nothing_is_told_nothing(ask: Ask) -> None:
    assert await ask(b"") == b""


async def test_who_does_not_finish_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "REQUEST_TIMEOUT_S", 0.2)
    monkeypatch.setattr(probes, "MAX_CONNECTIONS", 3)
    address = Probes(lambda: WorkerHealth(is_connected=True, is_draining=False, stalled_for=0.0)).open(
        ListenAddress("127.0.0.1", 0)
    )
    host, _, port = address.partition(":")
    slow = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
    ends = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in slow)), ANSWERS_WITHIN_S)
    assert ends == [b""] * 5
    for _, writer in slow:
        writer.close()
    assert await asyncio.to_thread(_get, f"http://{address}/livez") == (200, "ok\n")
