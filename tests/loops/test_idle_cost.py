"""What a gateway asks of Redis while nothing happens."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from redflow_sdk import Context, Worker, workflow
from redflow_server.config import Config
from redflow_server.embedded import EmbeddedStore
from redflow_server.gateway import Gateway
from redflow_server.store.scripts import load_scripts
from redflow_server.store.wire import Dial
from tests.eventually import eventually

WATCHED_S: Final = 5.0
MOST_COMMANDS: Final = 25
OBSERVERS: Final = {"info"}
IN_SCRIPTS: Final = {
    name.decode().lower()
    for script in load_scripts().values()
    for name in re.findall(rb"redis\.call\(\s*['\"](\w+)", script.source)
}
"""What scripts do by themselves is counted under these names. The gateway sends none of them."""


def a_workflow(name: str) -> Any:  # Any: a workflow of any input
    async def idle(ctx: Context) -> None:
        raise AssertionError("nobody has started it")

    return workflow(name=name, queue="q")(idle)


async def counts_of(dial: Dial) -> dict[str, int]:
    """How often each command has been sent to the server so far."""
    async with dial.client() as client:
        stats: dict[str, Any] = await client.info("commandstats")  # Any: numbers by name
    counts = {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}
    return {name: count for name, count in counts.items() if name not in OBSERVERS | IN_SCRIPTS}


async def is_quiet(dial: Dial) -> bool:
    """Whether nothing was sent for a while."""
    before = await counts_of(dial)
    await asyncio.sleep(0.2)
    return await counts_of(dial) == before


async def sent_while_idle(redis_url: str, lanes: int) -> dict[str, int]:
    """What a gateway with one idle worker of so many lanes sends, on a server that nobody else uses."""
    dial = Dial(redis_url)
    gateway = Gateway(Config(redis_url=redis_url, port=0))
    await gateway.start()
    worker = Worker(f"127.0.0.1:{gateway.port}", workflows=[a_workflow(f"w{number}") for number in range(lanes)])
    try:
        async with worker:
            await eventually(lambda: is_quiet(dial), saying="every duty has its first pass at the start")
            before = await counts_of(dial)
            await asyncio.sleep(WATCHED_S)
            after = await counts_of(dial)
    finally:
        await gateway.stop()
        await dial.close()
    return {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}


async def test_an_idle_gateway_sends_at_most_five_commands_a_second_however_many_lanes_it_serves() -> None:
    assert "evalsha" not in IN_SCRIPTS
    with EmbeddedStore() as one, EmbeddedStore() as other:
        few, many = await asyncio.gather(sent_while_idle(one.url, 1), sent_while_idle(other.url, 50))
    for sent in (few, many):
        assert sent["evalsha"] >= WATCHED_S - 1, "it looks ahead once a second"
        assert sum(sent.values()) <= MOST_COMMANDS, (few, many)
