"""What `redflow run` shows of runs that wait for others, and of failure handlers."""

from __future__ import annotations

import asyncio
import re

import pytest
import pytest_asyncio

from redflow_sdk import Client, Context, FailureContext, RunFailedError, workflow
from redflow_server.cli.exit_codes import ExitCode
from tests.cli.conftest import Run, Start
from tests.cli.test_run import ISO, STEP
from tests.cli.test_workflow import fields
from tests.conftest import StartWorker
from tests.eventually import eventually

MANY = 7


@workflow(name="pack", queue="children")
async def pack(ctx: Context, item: str) -> str:
    return f"packed {item}"


@workflow(name="order", queue="children")
async def order(ctx: Context) -> str:
    await ctx.step.run("count", lambda: 2)
    return await ctx.step.run_workflow("pack it", pack, "A-17", queue="elsewhere")


@workflow(name="charges", queue="children")
async def charges(ctx: Context) -> None:
    await ctx.step.run_workflow("charge it", charge, "A-17")


@workflow(name="many", queue="children")
async def many(ctx: Context) -> None:
    await asyncio.gather(*(ctx.step.run_workflow(f"c{n}", pack, "", queue="elsewhere") for n in range(MANY)))


async def _refund(failed: FailureContext) -> None:
    if failed.input == "broken":
        raise LookupError("no such receipt")


@workflow(name="charge", queue="children", on_failure=_refund)
async def charge(ctx: Context, card: str) -> None:
    raise ValueError("declined")


@pytest_asyncio.fixture
async def worker(start_worker: StartWorker) -> None:
    # Without parking, so that a run that can only wait is seen to wait.
    await start_worker(order, many, charge, charges, park_window=0)


async def waiting(client: Client, run_id: str) -> None:
    """Returns when the run waits for another one."""

    async def is_waiting() -> bool:
        return (await client.get_run(run_id)).status == "waiting"

    await eventually(is_waiting, within=10)


@pytest.mark.usefixtures("worker")
async def test_a_run_that_waits_for_another_shows_at_which_step_and_for_which(here: Run, client: Client) -> None:
    handle = await client.start(order)
    await waiting(client, handle.id)
    (child,) = (await here("run", "list", "--workflow", "pack", "-o", "json")).json["runs"]
    assert child["parent_run_id"] == handle.id

    said = f"run {child['id']}: 'pack' is queued, no worker serves 'pack' on queue 'elsewhere'"
    card, waits = (await here("run", "get", handle.id)).out.split("\n\n")
    assert fields(card)["status"] == "waiting"
    assert waits.splitlines()[1].startswith("child      pack it  ")
    assert waits.endswith(f"  -      {said}\n")
    (wait,) = (await here("run", "get", handle.id, "-o", "json")).json["waiting_for"]
    assert wait == {"kind": "child", "step_name": "pack it", "since": wait["since"], "until": None, "detail": said}
    assert ISO.fullmatch(wait["since"])


@pytest.mark.usefixtures("worker")
async def test_steps_show_the_run_that_each_waits_for_or_waited_for(
    here: Run, client: Client, start_worker: StartWorker
) -> None:
    handle = await client.start(order)
    await waiting(client, handle.id)
    (child,) = [run.id async for run in client.list_runs(workflow="pack")]
    steps = (await here("run", "steps", handle.id, "-o", "json")).json["steps"]
    assert all(set(step) == STEP for step in steps)
    assert [(step["name"], step["status"], step["child_run_id"]) for step in steps] == [
        ("count", "succeeded", ""),
        ("pack it", "waiting", child),
    ]

    *_, line = (await here("run", "steps", handle.id)).out.splitlines()
    assert re.search(rf"-  +'pack' is queued, no worker serves 'pack' on queue 'elsewhere'  {child}$", line)

    await start_worker(pack, queues=["elsewhere"], owner="packers")
    await handle.result(timeout=10)
    header, _, line = (await here("run", "steps", handle.id)).out.splitlines()
    assert header.split()[-2:] == ["OUTCOME", "CHILD_RUN"]
    assert line.endswith(f'"packed A-17"  {child}')


@pytest.mark.usefixtures("worker")
async def test_a_child_that_has_failed_is_shown_with_the_cause(here: Run, client: Client) -> None:
    handle = await client.start(charges)
    with pytest.raises(RunFailedError):
        await handle.result(timeout=10)
    (child,) = [run.id async for run in client.list_runs(workflow="charge")]
    _, line = (await here("run", "steps", handle.id)).out.splitlines()
    assert line.endswith(f"  ChildFailedError: run {child} has failed: ValueError: declined  {child}")


@pytest.mark.usefixtures("worker")
async def test_all_runs_that_it_waits_for_are_shown(here: Run, client: Client) -> None:
    handle = await client.start(many)
    await waiting(client, handle.id)
    _, waits = (await here("run", "get", handle.id)).out.split("\n\n")
    assert sorted(line.split()[1] for line in waits.splitlines()[1:]) == [f"c{number}" for number in range(MANY)]
    assert len((await here("run", "get", handle.id, "-o", "json")).json["waiting_for"]) == MANY


@pytest.mark.usefixtures("worker")
async def test_watch_shows_what_a_run_waits_for_and_what_comes_of_it(
    target: str, client: Client, start: Start, start_worker: StartWorker
) -> None:
    is_packed = asyncio.Event()

    @workflow(name="pack", queue="children")
    async def pack_slowly(ctx: Context, item: str) -> str:
        await is_packed.wait()
        return f"packed {item}"

    handle = await client.start(order)
    await waiting(client, handle.id)
    watch = await start("run", "watch", handle.id, "--target", target)
    seen = [" ".join((await watch.line()).split()[1:]) for _ in range(3)]
    (child,) = [run.id async for run in client.list_runs(workflow="pack")]
    waits = f"run waiting attempt 1 of 1, child of step pack it (run {child}: 'pack' is"
    assert seen == [
        "step succeeded count: 2",
        f"step waiting pack it: run {child}",
        f"{waits} queued, no worker serves 'pack' on queue 'elsewhere')",
    ]
    await start_worker(pack_slowly, queues=["elsewhere"], owner="packers")
    assert " ".join((await watch.line()).split()[1:]) == f"{waits} running)"
    is_packed.set()
    ended = await watch.end()
    assert ended.code == ExitCode.OK, ended
    words = [" ".join(line.split()[1:]) for line in ended.out.splitlines()]
    assert 'step succeeded pack it: "packed A-17"' in words


@pytest.mark.usefixtures("worker")
async def test_a_failed_run_shows_what_became_of_its_failure_handler(here: Run, client: Client) -> None:
    for card, state, failure in (("1234", "done", None), ("broken", "failed", "no such receipt")):
        handle = await client.start(charge, card)
        assert (await here("run", "result", handle.id, "--timeout", "10")).code == ExitCode.RUN_FAILED
        document = (await here("run", "get", handle.id, "-o", "json")).json
        assert (document["failure"]["message"], document["failure_handler"]) == ("declined", state)
        found = document["failure_handler_failure"]
        assert (found and found["message"]) == failure
        shown = fields((await here("run", "get", handle.id)).out.partition("\n\n")[0])["failure_handler"]
        assert shown == (f"failed (LookupError: {failure})" if failure else "done")


async def test_a_run_without_children_or_handler_shows_neither(here: Run, client: Client) -> None:
    handle = await client.start("w", queue="q")
    shown = fields((await here("run", "get", handle.id)).out.partition("\n\n")[0])
    assert "failure_handler" not in shown
    assert (await here("run", "get", handle.id, "-o", "json")).json["failure_handler"] == ""
    assert "CHILD_RUN" not in (await here("run", "steps", handle.id)).out
