"""The numbers of docs/semantics.md are those of the code, and its examples do what stands beside them."""

from __future__ import annotations

import ast
import inspect
import math
import re
from datetime import UTC, datetime, timedelta

import pytest

from redflow_sdk import Client, RetryPolicy, Worker
from redflow_sdk._retries import delay_before_next
from redflow_sdk._transport.calls import CALL_TIMEOUT
from redflow_server.config import Config
from redflow_server.domain.cron import CronRule
from redflow_server.domain.registry import FAILURE_HANDLER_MS
from redflow_server.domain.timing import Timing
from tests.conftest import StartWorker
from tests.tidy.how_to import CLAIM, calling, defining, module_of, workflows_of
from tests.tidy.test_docs import DOCS, rows, section, ticked

PAGE = DOCS / "semantics.md"


def of_worker(argument: str) -> float:
    return float(inspect.signature(Worker).parameters[argument].default)


def test_time_outs_have_the_defaults_of_the_table() -> None:
    timing = Timing()
    defaults = {row[0]: row[1] for row in rows(section(PAGE, "## Time-outs"))}
    assert {name: default for name, default in defaults.items() if default != "none"} == {
        "`failure_handler_timeout=`": f"{FAILURE_HANDLER_MS // 1000} s",
        "cancel grace, `--cancel-grace`": f"{timing.cancel_grace_ms // 1000} s",
        "lease, `--lease`": f"{timing.lease_ms // 1000} s",
        "fence": f"lease less {timing.fence_margin_ms // 1000} s",
        "`park_window=`": f"{of_worker('park_window'):g} s",
        "`drain_grace=` of a worker": f"{of_worker('drain_grace'):g} s",
        "`--drain-grace` of a gateway": f"{Config().drain_grace_ms // 1000} s",
        "`call_timeout=` of a client": f"{CALL_TIMEOUT:g} s",
    }


@pytest.mark.parametrize(("row", "jitter"), [("delay, s", 0.0), ("with all jitter, s", 0.1)])
def test_delays_are_those_of_the_table(row: str, jitter: float) -> None:
    (shown,) = [cells[1:] for cells in rows(section(PAGE, "## Retries")) if cells[0] == row]
    policy = RetryPolicy(max_attempts=100, jitter=0.0)
    for failures, cell in enumerate(shown, 1):
        delay_s = delay_before_next(policy, failures, ValueError())
        assert delay_s is not None and math.isclose(delay_s * (1 + jitter), float(cell))
    assert RetryPolicy().jitter == 0.1


def to_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def occurrences(expression: str, day: datetime) -> list[str]:
    """Those of a day in Berlin and the hours around it."""
    rule, at = CronRule.parse(expression, "Europe/Berlin"), to_ms(day - timedelta(hours=4))
    found = []
    while (at := rule.next_after(at)) < to_ms(day + timedelta(hours=20)):
        found.append(datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ"))
    return found


def test_schedules_come_as_the_table_says_when_clocks_change() -> None:
    gap, overlap = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
    table = [cells for cells in rows(section(PAGE, "## Cron")) if re.match(r"`[\d*]", cells[0])]
    assert len(table) == 2
    for name, in_gap, in_overlap in table:
        (expression,) = ticked(name)
        assert ticked(in_gap) == occurrences(expression, gap)
        assert ticked(in_overlap) == occurrences(expression, overlap)


async def test_workflows_return_what_the_page_says_and_a_start_that_is_repeated_starts_once(
    client: Client, start_worker: StartWorker
) -> None:
    module = module_of(*defining(PAGE))
    await start_worker(*workflows_of(module))
    claims = CLAIM.findall(PAGE.read_text())
    assert len(claims) == len(defining(PAGE))
    for name, given, expected in claims:
        value = ast.literal_eval(given)
        assert await client.execute(getattr(module, name), value, timeout=10) == ast.literal_eval(expected)

    place = module_of(*calling(PAGE)).place
    first, second = await place(client, "A-17", 500), await place(client, "A-17", 500)
    assert (first.id, first.created, second.created) == (second.id, True, False)
