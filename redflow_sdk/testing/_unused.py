"""What a play was given to stand in for something that did not happen: mostly a name that is not spelled right."""

from __future__ import annotations

from collections.abc import Iterable

from redflow_sdk._messages import StepKind
from redflow_sdk.testing._play import Play, Script
from redflow_sdk.testing._world import RunRecord

REPLACED = (StepKind.FUNCTION, StepKind.CHILD, StepKind.START)


def unused(play: Play, run: RunRecord, script: Script, events: Iterable[str]) -> tuple[str, ...]:
    """What has stood in for nothing in the play of the run, each with what there was. An event is of use where a step
    has waited for one of its name, whatever its key, or a workflow subscribes to it.
    """
    world = play.world
    functions = _steps_of(play, REPLACED)
    started = {other.workflow for other in world.runs.values() if other is not run}
    heard = world.awaited_events | {name for holder in world.holders.values() for name in holder.workflow.events}
    with_tokens = _steps_of(play, (StepKind.TOKEN,))
    not_started = (name for name in script.children if name not in started)
    not_heard = (name for name in events if name not in heard)
    return (
        *(_told("steps", name, "the steps that were called", functions) for name in play.steps.left),
        *(_told("children", name, "the workflows that were started", started) for name in not_started),
        *(_told("tokens", name, "the steps with a token", with_tokens) for name in play.tokens.left),
        *(_told("events", name, "the events that were waited for", heard) for name in not_heard),
    )


def _steps_of(play: Play, kinds: tuple[StepKind, ...]) -> set[str]:
    return {name for run in play.world.runs.values() for name, step in run.steps.items() if step.snapshot.kind in kinds}


def _told(argument: str, name: str, others: str, there: Iterable[str]) -> str:
    return (
        f"{argument}= has {name!r}, which nothing has used; {others}: {', '.join(map(repr, sorted(there))) or 'none'}"
    )
