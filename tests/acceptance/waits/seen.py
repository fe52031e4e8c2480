"""What is seen from outside of a run that waits, in whatever way."""

from __future__ import annotations

from redflow_sdk import Client
from redflow_sdk.records import WaitingFor


async def waits_of(client: Client, run_id: str) -> dict[str, WaitingFor]:
    """What a run waits for, by the names of its steps."""
    return {one.step_name: one for one in (await client.get_run(run_id)).waiting_for if one.step_name}


async def has_begun_to_wait(client: Client, run_id: str, *step_names: str) -> bool:
    """Whether a run waits for just these steps."""
    return set(await waits_of(client, run_id)) == set(step_names)
