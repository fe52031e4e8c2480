"""Which workflow definitions can be registered."""

from __future__ import annotations

import math

import pytest

from redflow_server.domain.errors import InvalidInput
from redflow_server.domain.names import MAX_ATTEMPTS
from redflow_server.domain.registry import (
    MAX_DURATION_MS,
    MAX_TRIGGERS,
    CronSchedule,
    RetryPolicy,
    check_definition,
)
from tests.builders import Changes, a_workflow

TIMEOUTS = ("run_timeout_ms", "start_timeout_ms", "failure_handler_timeout_ms")


def a_policy(**changes: Changes) -> RetryPolicy:
    return RetryPolicy(**{"initial_ms": 100, "multiplier": 2.0, "maximum_ms": 1000, "jitter_ratio": 0.1, **changes})


GOOD: list[dict[str, Changes]] = [
    {},
    {"max_attempts": 1},
    {"max_attempts": MAX_ATTEMPTS},
    *({name: value} for name in TIMEOUTS for value in (None, 1, MAX_DURATION_MS)),
    {"retry_policy": a_policy(initial_ms=0, maximum_ms=0)},
    {"retry_policy": a_policy(initial_ms=1000, maximum_ms=1000)},
    {"retry_policy": a_policy(initial_ms=MAX_DURATION_MS, maximum_ms=MAX_DURATION_MS)},
    *({"retry_policy": a_policy(multiplier=value)} for value in (1, 1000)),
    *({"retry_policy": a_policy(jitter_ratio=value)} for value in (0, 1)),
    {"event_names": ("a:b", "\N{EURO SIGN}")},
    {"event_names": tuple(f"e{number}" for number in range(MAX_TRIGGERS))},
    {"cron": (CronSchedule("", "0 3 * * *", "Europe/Berlin", None),)},
]

BAD: list[tuple[str, dict[str, Changes]]] = [
    ("name", {"name": ""}),
    ("name", {"name": "a\n"}),
    ("name", {"name": "x" * 257}),
    ("queue", {"queue": ""}),
    ("queue", {"queue": "a\x00"}),
    *(("max_attempts", {"max_attempts": value}) for value in (0, -1, MAX_ATTEMPTS + 1)),
    *((name, {name: value}) for name in TIMEOUTS for value in (0, -1, MAX_DURATION_MS + 1)),
    ("retry_policy.initial_interval", {"retry_policy": a_policy(initial_ms=-1)}),
    (
        "retry_policy.initial_interval",
        {"retry_policy": a_policy(initial_ms=MAX_DURATION_MS + 1, maximum_ms=MAX_DURATION_MS + 1)},
    ),
    ("retry_policy.maximum_interval", {"retry_policy": a_policy(initial_ms=100, maximum_ms=99)}),
    ("retry_policy.maximum_interval", {"retry_policy": a_policy(maximum_ms=MAX_DURATION_MS + 1)}),
    *(
        ("retry_policy.backoff_multiplier", {"retry_policy": a_policy(multiplier=value)})
        for value in (0.99, 1000.1, -2.0, math.inf, -math.inf, math.nan)
    ),
    *(
        ("retry_policy.jitter_ratio", {"retry_policy": a_policy(jitter_ratio=value)})
        for value in (-0.1, 1.1, math.inf, math.nan)
    ),
    ("event_triggers.event_name", {"event_names": ("good", "")}),
    ("event_triggers", {"event_names": tuple(f"e{number}" for number in range(MAX_TRIGGERS + 1))}),
    ("cron", {"cron": (CronSchedule("", "* * * * *", "", None),) * (MAX_TRIGGERS + 1)}),
    ("cron.schedule_id", {"cron": (CronSchedule("x" * 257, "* * * * *", "", None),)}),
    ("definition_digest", {"digest": "x" * 257}),
]


@pytest.mark.parametrize("changes", GOOD, ids=lambda changes: str(changes)[:60])
def test_a_sound_definition_is_taken(changes: dict[str, Changes]) -> None:
    check_definition(a_workflow(**changes))


@pytest.mark.parametrize(("field", "changes"), BAD, ids=lambda value: str(value)[:60])
def test_an_unsound_definition_is_refused_with_the_field_that_is_wrong(field: str, changes: dict[str, Changes]) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_definition(a_workflow(**changes))
    assert refused.value.details["field"] == f"workflow.{field}"
