"""What every loop has to bear, whatever its pass does: being started and stopped at any moment, and more than once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from redflow_server.loops.loop import Loop

TURNS = (0, 1, 2, 3, 5, 20)


def tasks_of(loop: Loop) -> list[asyncio.Task[object]]:
    """Its tasks that have not ended."""
    return [task for task in asyncio.all_tasks() if task.get_name() == f"loop-{loop.name}"]


async def stress(make_loop: Callable[[], Loop]) -> None:
    """Asserts that loops of this kind start once, stop at any moment, and are gone then."""
    for turns in TURNS:
        await _start_and_stop(make_loop(), turns)
    for seed in range(20):
        await _in_any_order(make_loop(), random.Random(seed))


async def _start_and_stop(loop: Loop, turns: int) -> None:
    assert not loop.is_alive
    await loop.stop()
    assert not loop.is_alive, "a stop before the start starts nothing"

    loop.start()
    loop.start()
    assert loop.is_alive
    assert len(tasks_of(loop)) == 1
    await _pass_turns(turns)
    loop.wake()
    loop.start()
    assert len(tasks_of(loop)) == 1

    async with asyncio.timeout(5.0):
        await asyncio.gather(loop.stop(), loop.stop())
        await loop.stop()
    assert not loop.is_alive
    assert tasks_of(loop) == []
    loop.wake()
    await _pass_turns(3)
    assert tasks_of(loop) == []


async def _in_any_order(loop: Loop, chance: random.Random) -> None:
    was_started = was_stopped = False
    for _ in range(30):
        match chance.randrange(4):
            case 0:
                loop.start()
                was_started = True
            case 1:
                loop.wake()
            case 2:
                await _pass_turns(chance.randrange(4))
            case 3 if chance.random() < 0.3:
                async with asyncio.timeout(5.0):
                    await loop.stop()
                was_stopped = was_stopped or was_started
        assert len(tasks_of(loop)) <= 1
        assert loop.is_alive == (was_started and not was_stopped), "a loop that was stopped stays stopped"
    await loop.stop()
    assert tasks_of(loop) == []


async def _pass_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
