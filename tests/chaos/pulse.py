"""What the worker of the schedule outage runs."""

from __future__ import annotations

from redflow_sdk import Context, Cron, workflow


@workflow(name="pulse", queue="chaos", cron=[Cron("* * * * * *", id="second")])
async def pulse(ctx: Context) -> None:
    """Once a second."""


app = [pulse]
