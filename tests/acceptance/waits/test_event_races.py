"""Events that are emitted just when runs begin to wait for them: no order of the two loses one, or gives it twice.

Many more of them, through processes: `python -m tests.chaos.emit_against_wait`.
"""

from __future__ import annotations

from redflow_sdk import Client
from tests.chaos.event_races import Races, listen
from tests.conftest import StartWorker

RACES = 150


async def test_each_event_that_races_against_its_wait_is_got_once_and_in_order(
    client: Client, start_worker: StartWorker
) -> None:
    await start_worker(listen)

    account = await Races(client, seed=1, at_once=20).run(close=RACES, at_most=RACES)

    assert account.violations == []
    assert len(account.meetings_s) == RACES
    assert 0 < account.before < RACES, "some events came before the wait, and some after it"
