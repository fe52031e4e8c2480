"""A workflow with what happens around it, to be played on a real gateway and inline."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from redflow_sdk.testing import ExternalEvent
from redflow_sdk.workflow import AnyWorkflow


@dataclass(frozen=True, slots=True)
class Scenario:
    """`others` are served too. `tokens` is what the tokens of steps are completed with, or failed by."""

    workflow: AnyWorkflow
    input: object = None
    others: tuple[AnyWorkflow, ...] = ()
    events: tuple[ExternalEvent, ...] = ()
    tokens: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.workflow.name


calls: Counter[str] = Counter()
"""How often functions were called in the play that is on."""
handed_over: asyncio.Queue[str] = asyncio.Queue()
"""Tokens that the handlers of the play that is on have given away."""


def begin_play() -> None:
    calls.clear()
    while not handed_over.empty():
        handed_over.get_nowait()


def fails(times: int, error: BaseException | type[BaseException], what: str = "flaky") -> int:
    """Raises so many times, and then gives how often it was called."""
    calls[what] += 1
    if calls[what] <= times:
        raise error
    return calls[what]
