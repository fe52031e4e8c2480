"""What `redflow run` shows of runs that wait: for a time, an event, a token, a worker, another attempt."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from redflow_sdk import Client, Context, RetryPolicy, workflow
from redflow_server.cli.exit_codes import ExitCode
from tests.cli.conftest import Run, Start
from tests.cli.test_run import FAILURE, ISO, LISTED, STEP
from tests.cli.test_workflow import fields
from tests.conftest import StartWorker
from tests.eventually import eventually

HOUR = timedelta(hours=1)
MANY = 7


@workflow(name="nap", queue="waits")
async def nap(ctx: Context) -> None:
    await ctx.step.sleep("rest", 3600)


@workflow(name="listen", queue="waits")
async def listen(ctx: Context) -> None:
    await ctx.step.wait_for_event("heard", "paid", key="A-17", timeout=3600)


@workflow(name="approve", queue="waits")
async def approve(ctx: Context) -> object:
    token = await ctx.step.token("approval", timeout=3600)
    return await token.result()


@workflow(name="many", queue="waits")
async def many(ctx: Context) -> None:
    await asyncio.gather(*(ctx.step.sleep(f"s{number}", 3600) for number in range(MANY)))


@workflow(name="limited", queue="waits", run_timeout=7200)
async def limited(ctx: Context) -> None:
    await ctx.step.sleep("rest", 3600)


@workflow(name="fail", queue="waits", retry=RetryPolicy(max_attempts=3, initial=3600, maximum=3600, jitter=0))
async def fail(ctx: Context) -> None:
    raise LookupError("no address")


@workflow(name="work", queue="waits")
async def work(ctx: Context) -> None:
    await ctx.step.run("begin", str)
    await asyncio.sleep(60)


@workflow(name="fetch", queue="waits")
async def fetch(ctx: Context) -> str:
    calls: list[int] = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("busy")
        return "page"

    await ctx.step.run("plain", str)
    return await ctx.step.run("get", flaky, retry=RetryPolicy(max_attempts=3, initial=0.01))


@workflow(name="call", queue="waits")
async def call(ctx: Context) -> None:
    def busy() -> None:
        raise ConnectionError("busy")

    await ctx.step.run("get", busy, retry=RetryPolicy(max_attempts=3, initial=3600, maximum=3600, jitter=0))


@workflow(name="compete", queue="waits", events=["begun"])
async def compete(ctx: Context, given: object = None) -> str:
    if given is not None:
        return "subscribed"
    await ctx.step.emit_event("tell", "begun", 1)
    await ctx.step.start_workflow("leave", nap, parent_close="cancel")
    await ctx.step.wait_for_event("early", "paid", key="never", timeout=0.01)
    won = await ctx.step.race("r", event=ctx.step.wait_for_event("late", "never"), time=ctx.step.sleep("rest", 0.01))
    return won.winner


@pytest_asyncio.fixture
async def worker(start_worker: StartWorker) -> None:
    """Without parking, so that a run that can only wait is seen to wait."""
    await start_worker(nap, listen, approve, many, limited, fail, work, fetch, call, compete, park_window=0)


async def status_of(client: Client, run_id: str, status: str) -> None:
    """Returns when the run has the status."""

    async def has_it() -> bool:
        return (await client.get_run(run_id)).status == status

    await eventually(has_it, within=10, saying=f"{run_id} is {status}")


async def started(client: Client, name: str, status: str) -> str:
    """A run of a workflow that has come to a status; its id."""
    handle = await client.start(name)
    await status_of(client, handle.id, status)
    return handle.id


def times(wait: dict[str, Any]) -> tuple[datetime, datetime]:
    return datetime.fromisoformat(wait["since"]), datetime.fromisoformat(wait["until"])


# ---- the listing ----


@pytest.mark.usefixtures("worker")
async def test_open_runs_are_listed_with_what_each_waits_for_since_when_until_when_and_what_holds_it(
    here: Run, client: Client
) -> None:
    before = datetime.now(UTC)
    for name in ("nap", "listen", "approve"):
        await started(client, name, "waiting")
    await started(client, "fail", "scheduled")
    await client.start("nobody's", queue="elsewhere")
    await client.start("later", queue="waits", available_at=before + HOUR)
    await started(client, "work", "running")
    await (await client.start("fetch")).result(timeout=10)

    ended = await here("run", "list", "--waiting", "-o", "json")

    assert ended.code == ExitCode.OK, ended
    assert all(set(run) == LISTED | {"failure"} for run in ended.json["runs"])
    waits = {run["workflow"]: wait for run in ended.json["runs"] for wait in run["waiting_for"]}
    assert {name: (wait["kind"], wait["step_name"], wait["detail"]) for name, wait in waits.items()} == {
        "later": ("delayed", "", ""),
        "nobody's": ("no_worker", "", "no worker serves \"nobody's\" on queue 'elsewhere'"),
        "fail": ("backing_off", "", ""),
        "approve": ("token", "approval", "somebody to complete its token"),
        "listen": ("event", "heard", "event 'paid' with the key 'A-17'"),
        "nap": ("timer", "rest", "sleeps"),
    }
    for name in ("nap", "listen", "approve", "fail"):
        since, until = times(waits[name])
        assert (until - since, since >= before - timedelta(milliseconds=1)) == (HOUR, True), name
    assert waits["nobody's"]["until"] is None
    (failed,) = [run["failure"] for run in ended.json["runs"] if run["workflow"] == "fail"]
    assert (set(failed), failed["message"]) == (FAILURE, "no address")


@pytest.mark.usefixtures("worker")
async def test_it_is_a_table_with_a_line_for_each_wait(here: Run, client: Client) -> None:
    napping, failed = await started(client, "nap", "waiting"), await started(client, "fail", "scheduled")
    ended = await here("run", "list", "--waiting")
    header, *lines = ended.out.splitlines()
    assert header.split() == ["ID", "WORKFLOW", "STATUS", "WAITS_FOR", "STEP", "SINCE", "UNTIL", "DETAIL"]
    cells = [line.split(maxsplit=7) for line in lines]
    assert [(*line[:5], line[7]) for line in cells] == [
        (failed, "fail", "scheduled", "backing_off", "-", "after attempt 1 of 3: LookupError: no address"),
        (napping, "nap", "waiting", "timer", "rest", "sleeps"),
    ]
    assert all(ISO.fullmatch(at) for line in cells for at in line[5:7])


@pytest.mark.usefixtures("worker")
async def test_where_a_time_out_is_to_end_a_run_it_says_when(here: Run, client: Client) -> None:
    run_id, other_id = await started(client, "limited", "waiting"), await started(client, "nap", "waiting")

    card = fields((await here("run", "get", run_id)).out.partition("\n\n")[0])
    document = (await here("run", "get", run_id, "-o", "json")).json
    header, *lines = (await here("run", "list", "--waiting")).out.splitlines()

    deadline = datetime.fromisoformat(document["started_at"]) + 2 * HOUR
    assert datetime.fromisoformat(document["deadline_at"]) == deadline
    assert card["deadline_at"] == document["deadline_at"]
    assert header.split()[:5] == ["ID", "WORKFLOW", "STATUS", "DEADLINE", "WAITS_FOR"]
    assert {line.split()[0]: line.split()[3] for line in lines} == {run_id: document["deadline_at"], other_id: "-"}


@pytest.mark.usefixtures("worker")
async def test_a_run_at_work_says_whose_it_is_and_until_when_unless_that_renews_its_lease(
    here: Run, client: Client
) -> None:
    run_id = await started(client, "work", "running")
    (at_work,) = await client.list_workers()
    shown = fields((await here("run", "get", run_id)).out)
    assert shown["worker_name"] == at_work.name
    assert datetime.fromisoformat(shown["lease_expires_at"]) > datetime.now(UTC)


async def test_of_the_runs_at_work_those_are_listed_whose_handlers_wait_in_memory(
    here: Run, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(nap, work, park_window=600)
    await started(client, "work", "running")
    parked = await started(client, "nap", "running")

    async def is_listed() -> bool:
        runs = (await here("run", "list", "--waiting", "-o", "json")).json["runs"]
        return [(run["id"], run["status"], run["open_waits"]) for run in runs] == [(parked, "running", 1)]

    await eventually(is_listed, within=10)


def has_passed(millisecond: datetime) -> bool:
    return datetime.now(UTC) - millisecond >= timedelta(milliseconds=1)


async def test_it_filters_and_pages_newest_first_over_all_statuses(here: Run, client: Client) -> None:
    later = datetime.now(UTC) + HOUR
    ids = []
    for name, available_at in (("a", later), ("b", None), ("a", None), ("b", later), ("a", later)):
        run = await (await client.start(name, queue="q", available_at=available_at)).get()
        ids.append(run.id)
        # Two of one millisecond stand in either order.
        await eventually(lambda created_at=run.created_at: has_passed(created_at), every=0.001)

    async def listed(*arguments: str) -> list[str]:
        shown = await here("run", "list", "--waiting", "-o", "json", *arguments)
        return [run["id"] for run in shown.json["runs"]]

    assert await listed() == ids[::-1]
    assert await listed("--limit", "2", "--offset", "1") == [ids[3], ids[2]]
    assert await listed("--workflow", "a") == [ids[4], ids[2], ids[0]]
    assert await listed("--status", "queued") == [ids[2], ids[1]]
    assert await listed("--workflow", "a", "--status", "queued") == [ids[2]]


async def test_when_none_waits_it_is_a_header_or_an_empty_list(here: Run, client: Client) -> None:
    await (await client.start("w", queue="q")).cancel()
    assert (await here("run", "list", "--waiting")).out.split()[0] == "ID"
    assert (await here("run", "list", "--waiting", "-o", "json")).json == {"runs": []}


@pytest.mark.usefixtures("worker")
async def test_of_many_waits_of_a_run_the_first_ones_are_in_the_table_and_all_in_json(
    here: Run, client: Client
) -> None:
    await started(client, "many", "waiting")
    header, *lines = (await here("run", "list", "--waiting")).out.splitlines()
    assert [line.split()[3] for line in lines] == [*["timer"] * 5, "and"]
    assert lines[-1][header.index("WAITS_FOR") :].split() == ["and", "2", "more", "-", "-", "-", "-"]
    (run,) = (await here("run", "list", "--waiting", "-o", "json")).json["runs"]
    assert len(run["waiting_for"]) == MANY


# ---- one run ----


@pytest.mark.usefixtures("worker")
async def test_all_waits_of_a_run_are_shown_below_it(here: Run, client: Client) -> None:
    run_id = await started(client, "many", "waiting")
    card, waits = (await here("run", "get", run_id)).out.split("\n\n")
    assert fields(card)["status"] == "waiting"
    assert waits.splitlines()[0].split() == ["WAITS_FOR", "STEP", "SINCE", "UNTIL", "DETAIL"]
    lines = [line.split() for line in waits.splitlines()[1:]]
    assert sorted((line[0], line[1], line[4]) for line in lines) == [
        ("timer", f"s{number}", "sleeps") for number in range(MANY)
    ]
    assert all(ISO.fullmatch(at) for line in lines for at in line[2:4])


@pytest.mark.usefixtures("worker")
async def test_an_open_step_shows_until_when_it_waits_and_for_what(here: Run, client: Client) -> None:
    run_id = await started(client, "listen", "waiting")
    (wait,) = (await here("run", "get", run_id, "-o", "json")).json["waiting_for"]
    _, line = (await here("run", "steps", run_id)).out.splitlines()
    assert line.split(maxsplit=7) == [
        *("1", "heard", "event", "waiting", "1", wait["since"], "-"),
        f"until {wait['until']}, event 'paid' with the key 'A-17'",
    ]


@pytest.mark.usefixtures("worker")
async def test_steps_of_every_kind_show_what_has_become_of_them(here: Run, client: Client) -> None:
    handle = await client.start(compete)
    assert await handle.result(timeout=10) == "time"
    steps = (await here("run", "steps", handle.id, "-o", "json")).json["steps"]
    assert all(set(step) == STEP for step in steps)
    (subscribed,) = [run.id async for run in client.list_runs(workflow="compete") if run.id != handle.id]
    (napping,) = [run.id async for run in client.list_runs(workflow="nap")]

    header, *lines = (await here("run", "steps", handle.id)).out.splitlines()
    at = header.index("OUTCOME")
    shown = {line.split()[1]: (*line.split()[2:4], *line[at:].split("  ")) for line in lines}
    assert {name: tuple(filter(None, map(str.strip, cells))) for name, cells in shown.items()} == {
        "tell": ("emit", "succeeded", f'["{subscribed}"]', "-"),
        "leave": ("start", "succeeded", "-", napping),
        "early": ("event", "succeeded", "timed out", "-"),
        "late": ("event", "withdrawn", "-", "-"),
        "rest": ("timer", "succeeded", "-", "-"),
    }


@pytest.mark.usefixtures("worker")
async def test_a_step_that_is_to_be_tried_again_says_so_as_long_as_it_is(here: Run, client: Client) -> None:
    run_id = await started(client, "call", "waiting")

    async def shown() -> tuple[bool, list[str]]:
        steps = (await here("run", "steps", run_id, "-o", "json")).json["steps"]
        return steps[0]["is_retrying"], (await here("run", "steps", run_id)).out.splitlines()[1:]

    is_retrying, (tried, pause) = await shown()
    assert is_retrying
    assert tried.split()[1:4] == ["get", "function", "failed"]
    assert tried.endswith("  try 2 follows, after ConnectionError: busy")
    assert "get (before try 2)  timer     waiting" in pause

    await client.cancel_run(run_id)
    is_retrying, (tried, _) = await shown()
    assert not is_retrying
    assert tried.endswith("Z  ConnectionError: busy")


@pytest.mark.usefixtures("worker")
async def test_an_event_that_a_step_has_got_is_its_outcome(here: Run, client: Client) -> None:
    handle = await client.start(listen)
    await client.emit_event("paid", {"id": "A-17"}, key="A-17")
    await handle.result(timeout=10)
    (step,) = (await here("run", "steps", handle.id, "-o", "json")).json["steps"]
    assert (step["output"], step["event_id"].partition("_")[0]) == ({"id": "A-17"}, "evt")
    assert (await here("run", "steps", handle.id)).out.rstrip().endswith('  {"id": "A-17"}')


@pytest.mark.usefixtures("worker")
async def test_calls_of_a_function_have_a_column_where_it_took_more_than_one(here: Run, client: Client) -> None:
    handle = await client.start(fetch)
    assert await handle.result(timeout=10) == "page"
    header, *lines = (await here("run", "steps", handle.id)).out.splitlines()
    assert header.split()[4:6] == ["ATTEMPT", "TRIES"]
    assert [line.split()[5] for line in lines] == ["1", "3"]
    steps = (await here("run", "steps", handle.id, "-o", "json")).json["steps"]
    assert [(step["name"], step["tries"]) for step in steps] == [("plain", 1), ("get", 3)]


async def test_watch_says_what_a_run_waits_for_when_that_changes(
    target: str, client: Client, start: Start, start_worker: StartWorker
) -> None:
    @workflow(name="twice", queue="waits")
    async def twice(ctx: Context) -> None:
        for name in ("first", "second"):
            await ctx.step.wait_for_event(name, name, timeout=3600)

    await start_worker(twice, park_window=0)
    run_id = await started(client, "twice", "waiting")
    watch = await start("run", "watch", run_id, "--target", target)
    for name in ("first", "second"):
        said = f"attempt 1 of 1, event of step {name} until "
        while not ((line := await watch.line()).split()[1:3] == ["run", "waiting"] and said in line):
            assert line, f"it has not said that the run waits in {name}"
        assert line.endswith(f"Z (event '{name}' without a key)")
        await client.emit_event(name)
    ended = await watch.end()
    assert (ended.code, ended.out.splitlines()[-1].split()[1:]) == (ExitCode.OK, ["run", "succeeded", "null"])
