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
_handed_over: list[asyncio.Queue[str]] = []


def begin_play() -> None:
    """On the loop that it is played on."""
    calls.clear()
    _handed_over[:] = [asyncio.Queue()]


async def hand_over(token: str) -> None:
    """A handler gives a token away."""
    await _handed_over[0].put(token)


async def handed_over() -> str:
    """The next token that a handler of the play that is on gives away."""
    return await _handed_over[0].get()


def fails(times: int, error: BaseException | type[BaseException], what: str = "flaky") -> int:
    """Raises so many times, and then gives how often it was called."""
    calls[what] += 1
    if calls[what] <= times:
        raise error
    return calls[what]
