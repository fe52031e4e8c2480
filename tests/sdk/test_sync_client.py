"""The synchronous client is the async one whose calls block: the same arguments, values and errors, from any thread."""

from __future__ import annotations

import asyncio
import inspect
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_overloads

import pytest

from redflow_sdk import (
    Client,
    Context,
    InputValidationError,
    InvalidInputError,
    RunFailedError,
    RunHandle,
    RunList,
    SerializationError,
    SyncClient,
    SyncRunHandle,
    SyncRunList,
    TokenNotFoundError,
    UnavailableError,
    workflow,
)
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import failure_pb2, run_pb2
from tests.eventually import eventually
from tests.sdk.scripted_runs import ScriptedRuns, a_page, a_run
from tests.sdk.test_client_processes import said_by
from tests.sdk.worker_program import ROOT


@dataclass
class Order:
    id: int

    def __post_init__(self) -> None:
        made_on.add(threading.current_thread().name)


@dataclass
class Receipt:
    total: float

    def __post_init__(self) -> None:
        made_on.add(threading.current_thread().name)


made_on: set[str] = set()


@workflow(name="charge", queue="money")
async def charge(ctx: Context, order: Order) -> Receipt:
    return Receipt(1.0)


# ---- it is the async client ----

PAIRS = [(Client, SyncClient), (RunHandle, SyncRunHandle), (RunList, SyncRunList)]
OF_THE_SDK = {"client", "output_type", "output_of", "page_after"}
"""What handles and lists have for the SDK itself."""


def public(kind: type) -> set[str]:
    fields = getattr(kind, "__dataclass_fields__", {})
    return {name for name in (*vars(kind), *fields) if not name.startswith("_")} - OF_THE_SDK


def blocking_signature(function: Callable[..., object]) -> inspect.Signature:
    """What the signature of an async function has to be when it blocks."""
    signature = inspect.signature(function)
    names = re.sub(r"\b(Client|RunHandle|RunList)\b", r"Sync\1", str(signature.return_annotation))
    return signature.replace(return_annotation=names)


@pytest.mark.parametrize(("awaited", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_it_has_every_public_method_with_the_same_parameters_and_results(awaited: type, blocking: type) -> None:
    assert public(awaited) == public(blocking)
    for name in public(awaited):
        theirs, ours = getattr(awaited, name, None), getattr(blocking, name)
        if inspect.isfunction(theirs):
            assert not inspect.iscoroutinefunction(ours)
            assert inspect.signature(ours) == blocking_signature(theirs), name
            overloads = [blocking_signature(one) for one in get_overloads(theirs)]
            assert [inspect.signature(one) for one in get_overloads(ours)] == overloads, name
            assert ours.__doc__, name


def test_it_is_made_and_closed_like_the_async_one() -> None:
    assert inspect.signature(SyncClient) == inspect.signature(Client)
    assert hasattr(SyncClient, "__enter__") and hasattr(SyncClient, "__exit__") and hasattr(SyncRunList, "__iter__")


AT = datetime(2030, 1, 1, 12, tzinfo=UTC)

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("start", (charge, Order(1)), {}),
    (
        "start",
        ("by-name", {"id": 2}),
        {
            "idempotency_key": "k",
            "idempotency_ttl": 1.5,
            "available_at": AT,
            "queue": "q",
            "priority": -7,
            "max_attempts": 9,
            "on_input_mismatch": "reject",
        },
    ),
    ("execute", (charge, Order(1)), {"timeout": 5}),
    ("complete_token", ("tok", {"a": 1}), {}),
    ("fail_token", ("tok", "too dear"), {"type": "Rejected"}),
    ("get_run", ("run-1",), {}),
    ("get_run_steps", ("run-1",), {}),
    ("cancel_run", ("run-1",), {"reason": "customer left"}),
    ("wait_run", ("run-1", 5), {}),
]


def plain(value: object) -> object:
    """A value without what tells one client from another."""
    return (value.id, value.created) if isinstance(value, (RunHandle, SyncRunHandle)) else value


def without_request_id(text: str) -> str:
    return re.sub(r'request_id: ".*?"', "", text)


@pytest.mark.parametrize(("name", "args", "settings"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_it_sends_and_returns_what_the_async_one_does(
    name: str, args: tuple[Any, ...], settings: dict[str, Any], runs: ScriptedRuns
) -> None:
    async def awaited() -> object:
        async with Client(runs.target) as client:
            return plain(await getattr(client, name)(*args, **settings))

    expected = asyncio.run(awaited())
    sent = len(runs.calls)
    with SyncClient(runs.target) as client:
        assert plain(getattr(client, name)(*args, **settings)) == expected
    first, second = runs.calls[:sent], runs.calls[sent:]
    shown = [[without_request_id(f"{call.name} {call.request}") for call in calls] for calls in (first, second)]
    assert sent and shown[0] == shown[1]


def test_what_it_refuses_it_refuses_before_anything_is_sent(runs: ScriptedRuns) -> None:
    with SyncClient(runs.target) as client:
        with pytest.raises(InputValidationError, match=r"\$\.id"):
            client.start(charge, Order("one"))  # type: ignore[arg-type]  # that is the case
        with pytest.raises(SerializationError, match=r"\$\.a"):
            client.execute("charge", {"a": {1, 2}})
        with pytest.raises(InvalidInputError, match="priority"):
            client.start(charge, Order(1), priority=1001)
        with pytest.raises(TokenNotFoundError):
            client.complete_token("tök")
    with pytest.raises(InvalidInputError, match="target"):
        SyncClient("nowhere")
    assert runs.calls == []


def test_the_code_of_the_types_of_a_user_runs_in_the_thread_of_the_caller(runs: ScriptedRuns) -> None:
    made_on.clear()
    with SyncClient(runs.target) as client:
        assert client.execute(charge, Order(1)) == Receipt(9.5)
    assert made_on == {threading.current_thread().name}


def test_a_run_that_has_failed_raises_how(runs: ScriptedRuns) -> None:
    failure = failure_pb2.Failure(type="CardDeclined", message="no money", traceback="tb")
    runs.script["End"] = lambda run_id: a_run(run_pb2.RUN_STATUS_FAILED, workflow="charge", failure=failure)
    with SyncClient(runs.target) as client:
        handle = client.start(charge, Order(1))
        with pytest.raises(RunFailedError, match="CardDeclined: no money") as failed:
            handle.result(timeout=10)
    assert failed.value.failure is not None and failed.value.failure.traceback == "tb"


def test_a_listing_is_read_page_by_page_as_far_as_it_is_wanted(runs: ScriptedRuns) -> None:
    pages = {"": a_page(3, "t1"), "t1": a_page(3, "t2", first=3), "t2": a_page(1, first=6)}
    runs.script["ListRuns"] = lambda request: pages[request.page_token]
    with SyncClient(runs.target) as client:
        listing = client.list_runs(workflow="w", status="failed")
        assert runs.calls == []
        some = iter(listing)
        assert [next(some).id for _ in range(3)] == ["run-0", "run-1", "run-2"]
        assert len(runs.calls) == 1
        assert [run.id for run in listing] == [f"run-{n}" for n in range(7)]
        assert [run.id for run in client.list_runs().page(limit=3, offset=0)] == ["run-0", "run-1", "run-2"]


# ---- time ----


def not_yet(runs: ScriptedRuns) -> None:
    """Lets no run end."""
    runs.script.update(End=lambda run_id: None, WaitRun=lambda request: pb.WaitRunResponse(done=False))


def test_a_result_is_waited_for_no_longer_than_asked(runs: ScriptedRuns) -> None:
    not_yet(runs)
    with SyncClient(runs.target) as client:
        for wait in (client.handle("run-1").result, lambda timeout: client.execute("w", timeout=timeout)):
            started_at = time.monotonic()
            with pytest.raises(TimeoutError, match="run-1"):
                wait(0.5)
            assert 0.5 <= time.monotonic() - started_at < 2
        assert client.wait_run("run-1", 0.1) is None
        runs.stop()
        with pytest.raises(UnavailableError):
            client.handle("run-1").result(timeout=0.5)


def test_a_call_that_waits_when_the_client_is_closed_raises_that(runs: ScriptedRuns, released: threading.Event) -> None:
    asked = threading.Event()

    def block(request: object) -> pb.GetRunResponse:
        asked.set()
        released.wait(20)
        return pb.GetRunResponse(run=a_run())

    runs.script["GetRun"] = block
    client = SyncClient(runs.target)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(client.get_run, "run-1")
        assert asked.wait(10)
        client.close()
        with pytest.raises(UnavailableError, match="closed"):
            call.result(10)
    released.set()
    assert client.get_run("run-2").id == "run-1", "another call opens a new connection"
    client.close()
    client.close()


# ---- threads, loops, processes ----


def test_many_threads_may_use_one_at_once(runs: ScriptedRuns) -> None:
    together = threading.Barrier(32)
    client = SyncClient(runs.target)

    def use(number: int) -> tuple[object, str]:
        together.wait(10)
        return client.execute(charge, Order(number)), client.get_run(f"run-{number}").id

    with client, ThreadPoolExecutor(32) as threads:
        found = list(threads.map(use, range(32)))
    assert found == [(Receipt(9.5), f"run-{number}") for number in range(32)]
    assert len({call.request.request_id for call in runs.named("StartRun")}) == 32


async def test_it_works_in_the_thread_of_a_running_loop(runs: ScriptedRuns) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await eventually(lambda: ticks)
    with SyncClient(runs.target) as client:
        before = ticks
        assert client.execute(charge, Order(1), timeout=10) == Receipt(9.5)
        assert [run.id for run in client.list_runs()] == ["run-0", "run-1", "run-2"]
        assert ticks == before, "the loop stands still meanwhile"
    await eventually(lambda: ticks > before)
    ticking.cancel()


async def test_it_and_async_clients_may_be_used_side_by_side(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as awaited:
        with SyncClient(runs.target) as blocking:
            waiting = asyncio.ensure_future(awaited.execute(charge, Order(1)))
            assert blocking.execute(charge, Order(2)) == Receipt(9.5)
            assert await waiting == Receipt(9.5)


INTERRUPTED = """
import sys
from redflow_sdk import SyncClient

with SyncClient(sys.argv[1]) as client:
    for wait in (lambda: client.handle("run-1").result(), lambda: client.start("w", queue="q")):
        try:
            wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    print(client.get_run("run-7").id, flush=True)
"""


async def test_ctrl_c_ends_a_wait_at_once_and_the_client_goes_on(runs: ScriptedRuns, released: threading.Event) -> None:
    def held(request: object) -> pb.StartRunResponse:
        released.wait(20)
        return pb.StartRunResponse(run_id="run-1", created=True)

    not_yet(runs)
    runs.script["StartRun"] = held
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", INTERRUPTED, runs.target), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert running.stdout is not None
    for asked in ("End", "StartRun"):
        await eventually(lambda asked=asked: runs.named(asked), within=20)
        running.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(running.stdout.readline(), 5) == b"interrupted\n"
    assert await asyncio.wait_for(running.stdout.readline(), 5) == b"run-7\n"
    released.set()
    assert await asyncio.wait_for(running.wait(), 10) == 0
    assert ["run-1"] in [list(call.request.forgotten_run_ids) for call in runs.named("ExecuteRuns")]


FORKS = """
import os, sys
from redflow_sdk import SyncClient

used = SyncClient(sys.argv[1])
used.get_run("run-1")
if os.fork() == 0:
    for attempt in (used.get_run, used.handle("run-1").cancel, SyncClient(sys.argv[1]).get_run, lambda _: used.close()):
        try:
            attempt("run-1")
        except RuntimeError as error:
            print("refused:", error, flush=True)
        else:
            print("not refused", flush=True)
    os._exit(0)
os.wait()
print(used.get_run("run-2").id, flush=True)
"""

FORKS_FIRST = """
import os, sys
from redflow_sdk import SyncClient
client = SyncClient(sys.argv[1])
number = 1 if os.fork() == 0 else 2
print(client.get_run(f"run-{number}").id, flush=True)
if number == 1:
    os._exit(0)
os.wait()
"""


def test_a_fork_of_a_process_that_used_it_is_refused_with_one_sentence(runs: ScriptedRuns) -> None:
    *refused, last = said_by(FORKS, runs.target)
    assert len(refused) == 4 and len(set(refused)) == 1
    assert refused[0].startswith("refused: ") and "fork" in refused[0]
    assert last == "run-2"


def test_processes_that_fork_before_they_use_it_may_both_use_it(runs: ScriptedRuns) -> None:
    assert sorted(said_by(FORKS_FIRST, runs.target)) == ["run-1", "run-2"]
