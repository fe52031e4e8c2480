"""`redflow doctor`: what it says of a Redis and of the state in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from redflow_sdk import Client, Context, Cron, workflow
from redflow_server.cli import doctor_report, main
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.cli.command import ROOT, redflow
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.redis_command import RedisCommand

OPERATIONS = ROOT / "docs" / "operations.md"


async def test_sound_state_is_clean_and_each_setting_has_a_line(redis_url: str, prefix: str, client: Client) -> None:
    await client.start("w", queue="q")
    ended = await redflow("doctor", "--redis", redis_url, "--prefix", prefix)
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    names = [line.split()[0] for line in ended.out.partition("\n\n")[0].splitlines()]
    assert names == ["server", "persistence", "maxmemory", "maxmemory-policy", "replicas"]
    assert "the state agrees with itself" in ended.out


@pytest.mark.leaves_faults
async def test_broken_state_is_found(
    redis_url: str, prefix: str, client: Client, redis: RedisCommand, keys: Keys
) -> None:
    handle = await client.start("w", queue="q")
    await redis("HSET", keys.run(handle.id), "status", "running")
    arguments = ("doctor", "--redis", redis_url, "--prefix", prefix)
    shown = await redflow(*arguments)
    assert shown.code == ExitCode.REFUSED
    assert any(handle.id in line for line in shown.out.splitlines())

    document = (await redflow(*arguments, "-o", "json")).json
    assert set(document) == {"redis", "problems", "findings", "unserved", "waits", "events"}
    assert set(document["redis"]) == {
        *("name", "version", "persistence", "max_memory_bytes", "eviction_policy", "replicas")
    }
    assert handle.id in {finding["subject"] for finding in document["findings"]}
    assert all(set(finding) == {"rule", "subject", "detail"} for finding in document["findings"])


@pytest.mark.leaves_faults
async def test_broken_waits_schedules_events_and_outbox_are_told_by_their_rules(
    redis_url: str, prefix: str, client: Client, redis: RedisCommand, keys: Keys, start_worker: StartWorker
) -> None:
    @workflow(name="parent", queue="q", cron=[Cron("@yearly")])
    async def parent(ctx: Context) -> None:
        await ctx.step.run_workflow("wait", "child", queue="nowhere")

    await start_worker(parent, park_window=0)
    handle = await client.start(parent)

    async def is_waiting() -> bool:
        return (await handle.get()).status == "waiting"

    await eventually(is_waiting, within=10)
    arguments = ("doctor", "--redis", redis_url, "--prefix", prefix)
    sound = await redflow(*arguments)
    assert sound.code == ExitCode.OK, sound

    await redis("DEL", keys.waits(handle.id))
    await redis("DEL", keys.cron_def)
    await redis("HSET", keys.emitted("evt_x"), "name", "e")
    # Due in 2100, for the gateway of the test would take it away.
    await redis("ZADD", keys.outbox, 4_102_444_800_000, "wonder run_x")
    broken = await redflow(*arguments, "-o", "json")
    assert broken.code == ExitCode.REFUSED
    assert {"waits", "schedules", "events", "outbox"} <= {finding["rule"] for finding in broken.json["findings"]}
    shown = {line.split()[0] for line in (await redflow(*arguments)).out.splitlines() if line}
    assert {"waits", "schedules", "events", "outbox"} <= shown


async def test_lanes_that_no_connected_worker_serves_are_listed_and_are_no_fault(
    redis_url: str, prefix: str, client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="served", queue="q")
    async def served(ctx: Context) -> None:
        await asyncio.sleep(60)

    await start_worker(served, concurrency=1)
    for name, queue in (
        ("served", "q"),
        ("served", "q"),
        ("served", "elsewhere"),
        ("nobody's", "q"),
        ("nobody's", "q"),
    ):
        await client.start(name, queue=queue)
    arguments = ("doctor", "--redis", redis_url, "--prefix", prefix)

    document = await redflow(*arguments, "-o", "json")

    assert document.code == ExitCode.OK
    assert document.json["unserved"] == [
        {"queue": "elsewhere", "workflow": "served", "runs": 1},
        {"queue": "q", "workflow": "nobody's", "runs": 2},
    ]
    shown = await redflow(*arguments)
    assert shown.code == ExitCode.OK
    said = shown.out.partition("no worker serves\n")[2].splitlines()
    assert [line.split() for line in said] == [
        ["QUEUE", "WORKFLOW", "RUNS"],
        ["elsewhere", "served", "1"],
        ["q", "nobody's", "2"],
    ]


async def test_when_every_lane_is_served_none_is_listed(redis_url: str, prefix: str, client: Client) -> None:
    ended = await redflow("doctor", "--redis", redis_url, "--prefix", prefix)
    assert (ended.code, "no worker serves" in ended.out) == (ExitCode.OK, False)


@pytest.mark.leaves_faults
async def test_waits_that_are_over_for_a_minute_and_events_on_their_way_are_told_and_are_no_fault(
    redis_url: str, prefix: str, redis: RedisCommand, keys: Keys
) -> None:
    seconds, _ = await redis("TIME")
    long_ago_ms, just_now_ms = 1000 * int(seconds) - 90_000, 1000 * int(seconds) - 5_000
    await redis("ZADD", keys.timers, long_ago_ms, "run_a nap", long_ago_ms + 1, "run_b nap", just_now_ms, "run_c nap")
    await redis("ZADD", keys.deliveries, 7, "3 4:paid")
    arguments = ("doctor", "--redis", redis_url, "--prefix", prefix)

    document = (await redflow(*arguments, "-o", "json")).json

    since = datetime.fromtimestamp(long_ago_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert document["waits"] == {"overdue": 2, "overdue_since": since}
    assert document["events"]["left_to_deliver"] == 1
    said = (await redflow(*arguments)).out.partition("left to gateways\n")[2].splitlines()
    assert [line.split("  ")[0] for line in said] == [
        "WHAT",
        "waits whose time is over",
        "events on their way to waits",
    ]
    assert [line.split()[-2:] for line in said[1:]] == [["2", since], ["1", "-"]]


async def test_when_gateways_have_done_everything_nothing_is_said_to_be_left(
    redis_url: str, prefix: str, client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="rest", queue="q")
    async def rest(ctx: Context) -> None:
        await ctx.step.sleep("nap", 600)

    await start_worker(rest, park_window=0)
    handle = await client.start(rest)

    async def is_waiting() -> bool:
        return (await handle.get()).status == "waiting"

    await eventually(is_waiting, within=10)
    arguments = ("doctor", "--redis", redis_url, "--prefix", prefix)
    document = await redflow(*arguments, "-o", "json")
    assert document.code == ExitCode.OK
    assert document.json["waits"] == {"overdue": 0, "overdue_since": None}
    assert document.json["events"] == {"left_to_deliver": 0, "remembered": 0, "dropped": 0}
    shown = (await redflow(*arguments)).out
    assert "left to gateways" not in shown and "forgotten" not in shown


async def test_events_that_were_forgotten_early_are_counted(redis_url: str, prefix: str, client: Client) -> None:
    for number in range(103):  # a hundred are remembered of a name
        await client.emit_event("paid", number)
    arguments = ("doctor", "--redis", redis_url, "--prefix", prefix)
    document = (await redflow(*arguments, "-o", "json")).json
    assert document["events"] == {"left_to_deliver": 0, "remembered": 100, "dropped": 3}
    last = (await redflow(*arguments)).out.splitlines()[-1]
    assert last == "events forgotten early, because there were too many: 3"


@pytest.fixture
def own_store() -> Iterator[str]:
    """A store whose settings the test may change."""
    with EmbeddedStore() as store:
        yield store.url


async def test_it_looks_into_a_redis_whose_memory_is_full(own_store: str) -> None:
    dial = Dial(own_store)
    async with dial.client() as client:
        await client.set("other", "x" * 10_000)
        await client.config_set("maxmemory", "1")
    await dial.close()
    ended = await redflow("doctor", "--redis", own_store)
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    assert "the state agrees with itself" in ended.out


async def test_a_redis_that_would_lose_runs_is_a_fatal_problem(own_store: str) -> None:
    dial = Dial(own_store)
    async with dial.client() as client:
        await client.config_set("maxmemory", "100mb")
        await client.config_set("maxmemory-policy", "allkeys-lru")
    await dial.close()
    ended = await redflow("doctor", "--redis", own_store, "-o", "json")
    assert ended.code == ExitCode.REFUSED
    assert ended.json["redis"]["eviction_policy"] == "allkeys-lru"
    [fatal] = [problem["sentence"] for problem in ended.json["problems"] if problem["is_fatal"]]
    assert "allkeys-lru" in fatal


def test_where_none_was_named_it_says_how_to_name_another(
    free_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"redis://127.0.0.1:{free_port}/0"
    monkeypatch.setattr(doctor_report, "DEFAULT_URL", url)
    assert main(["doctor", "--redis", url]) == ExitCode.UNAVAILABLE
    assert "`--redis` names another one, such as the `store` that `redflow dev` prints" in capsys.readouterr().err


async def test_without_redis_it_says_so(free_port: int) -> None:
    ended = await redflow("doctor", "--redis", f"redis://127.0.0.1:{free_port}/0")
    assert ended.code == ExitCode.UNAVAILABLE
    assert "Redis does not answer" in ended.error


async def test_a_user_of_redis_that_may_do_too_little_for_it_is_told_so(own_store: str) -> None:
    """The user that gateways have is one."""
    settings = re.search(r"^ACL SETUSER redflow (on >secret .*?)^```", OPERATIONS.read_text(), re.M | re.S)
    assert settings
    dial = Dial(own_store)
    async with dial.client() as client:
        await client.execute_command("ACL", "SETUSER", "redflow", *settings[1].split())
    await dial.close()
    cases = (
        ("unix://redflow:secret@", "?db=0", "Redis refuses what doctor needs: ", "no permissions"),
        ("unix://redflow:wrong@", "?db=0", "Redis refuses user and password: ", "invalid username-password pair"),
        ("unix://", "?db=99", "Redis does not have this database: ", "out of range"),
    )
    for scheme, query, begins, says in cases:
        ended = await redflow("doctor", "--redis", own_store.partition("?")[0].replace("unix://", scheme) + query)
        assert ended.code == ExitCode.REFUSED
        assert ended.error.startswith(begins)
        assert says in ended.error
        assert ("administrator" in ended.error) == (says == "no permissions")
