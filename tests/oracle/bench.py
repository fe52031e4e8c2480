"""Plays calls against the real store and the model, and compares answers and everything stored after each.

Where chance decides, the model is asked for what it might have done, until that is what was seen.
"""

from __future__ import annotations

import asyncio
import pickle
import re
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from redflow_server.domain.errors import Refusal, StoreUnavailable
from redflow_server.domain.events import NewEvent
from redflow_server.domain.leases import StepRecorded, Suspended
from redflow_server.domain.registry import Registered
from redflow_server.domain.runs import Run
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import FOLDER, load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wire import Argument, Dial, Wire, pack
from tests.line import Line, to_redis
from tests.oracle.comparison import differences, told
from tests.oracle.counts import Counts
from tests.oracle.dump import read_dump
from tests.oracle.model.luck import Luck
from tests.oracle.model.places import forget_empty_lanes, indexes
from tests.oracle.model.verbs import VERBS
from tests.oracle.model.world import Moment, World
from tests.oracle.projection import project

T = TypeVar("T")
START_MS: Final = 2_000_000_000_000
"""Ahead of the real clock, so that what is due by that is not old."""
_LONG: Final = re.compile(r"((?:\\x[0-9a-f]{2}){1,2}|.)\1{20,}")
MAX_COURSES: Final = 400
"""Of what chance might have done."""


@dataclass(frozen=True)
class Call:
    """One call of a verb; `damage` is what only the model has to be told."""

    verb: str
    arguments: tuple[Any, ...] = ()  # Any: what the verb takes
    named: dict[str, Any] = field(default_factory=dict)  # Any: as above
    damage: tuple[object, ...] = ()

    def __str__(self) -> str:
        named = [f"{name}={value!r}" for name, value in self.named.items()]
        return f"{self.verb}({', '.join([*map(repr, self.arguments), *named])})"


def abridged(thing: object) -> str:
    """As it is written, but what is the same many times is written once."""
    return _LONG.sub(r"\1...", str(thing))


def a_call(verb: str, *arguments: object, **named: object) -> Call:
    return Call(verb, arguments, named)


@dataclass
class Seen:
    """What stood in Redis after a call."""

    world: World
    indexes: dict[str, object]
    oddities: list[str]


class Mismatch(AssertionError):
    """Model and store disagree."""


class Server:
    """One event loop and what is used by all examples: connections, and the line that loses answers."""

    def __init__(self, redis_url: str, folder: Path, scripts: Path = FOLDER) -> None:
        self.runner = asyncio.Runner()
        self.dial = Dial(redis_url)
        self.scripts = load_scripts(scripts)
        self.line = Line(to_redis(redis_url))
        self.run(self.line.open())
        self.line_dial = Dial(self.line.through(redis_url))
        self.wire: Wire = self.run(self.dial.wire())

    def run(self, work: Coroutine[Any, Any, T]) -> T:  # Any: nobody sends into it
        return self.runner.run(work)

    def close(self) -> None:
        self.wire.close()
        self.run(self._close())
        self.runner.close()

    async def _close(self) -> None:
        await self.line_dial.close()
        await self.dial.close()
        await self.line.close()


class Bench:
    """Store and model side by side, on one prefix."""

    def __init__(self, server: Server, prefix: str, counts: Counts) -> None:
        self.server = server
        self.prefix = prefix
        self.counts = counts
        self.world = World()
        self.now = START_MS
        self.events: list[NewEvent] = []
        """All that were emitted, for repeats."""
        self.has_failed = False
        self._numbers = 0
        self._log: list[tuple[int, tuple[object, ...], str]] = []
        self._pipeline = Pipeline(server.line_dial, server.scripts, prefix)
        self._store = Store(self._pipeline)
        server.run(self._pipeline.start())

    def next_number(self) -> int:
        """For ids that nothing has yet."""
        self._numbers += 1
        return self._numbers

    # ---- playing ----

    def play(self, *calls: Call) -> list[object]:
        """Makes the calls in one turn of the loop, of one verb when there are several; their answers."""
        self._note(*calls)
        answers = self.server.run(self._ask(calls))
        self._agree(calls, answers, times=1)
        return answers

    def play_with_lost_answer(self, call: Call) -> object:
        """Redis executes the call, the connection is cut before the answer, and the pipeline does what it does."""
        self._note(call, how=" and its answer is lost")
        self.server.line.lose_reply_to(self.server.scripts[call.verb].sha)
        [answer] = self.server.run(self._ask((call,)))
        if self.server.scripts[call.verb].is_repeatable:
            self._agree((call,), [answer], times=2)
        else:
            assert isinstance(answer, StoreUnavailable)
            self._agree((call,), [answer], times=1, is_answered=False)
        self.counts.lost[call.verb] += 1
        return answer

    def _note(self, *calls: Call, how: str = "") -> None:
        self._log.append((self.now - START_MS, calls, how))
        self.counts.last = calls[0].verb

    def mismatch(self, *lines: str) -> Mismatch:
        """What was played, and what does not agree at its end."""
        played = (
            f"at {at_ms} ms: " + " together with ".join(map(abridged, calls)) + how for at_ms, calls, how in self._log
        )
        self.has_failed = True
        return Mismatch("\n".join(["after", *played, "", *map(abridged, lines)]))

    def do(self, *command: Argument, expected: int | None) -> None:
        """A command behind the store's back, as an outage may leave things."""
        self._log.append((self.now - START_MS, command, " behind the store's back"))
        reply = self.server.run(self._do(command))
        assert expected in (None, reply), (command, reply)

    async def _do(self, command: Sequence[Argument]) -> object:
        [reply] = await self.server.wire.ask([pack(*command)], 1)
        return reply

    async def _ask(self, calls: Sequence[Call]) -> list[object]:
        self._store.now_ms = self.now
        futures = [getattr(self._store, call.verb)(*call.arguments, **call.named) for call in calls]
        return list(await asyncio.gather(*futures, return_exceptions=True))

    async def _look(self) -> Seen:
        return Seen(*project(await read_dump(self.server.wire, self.prefix)))

    # ---- comparing ----

    def _agree(self, calls: Sequence[Call], answers: list[object], *, times: int, is_answered: bool = True) -> None:
        seen = self.server.run(self._look())
        before = pickle.dumps(self.world)
        shown = [_sorted(answer) for answer in answers] if is_answered else None
        course: list[int] | None = []
        first: list[str] = []
        for _ in range(MAX_COURSES):
            luck = Luck(course, _likely(seen.world))
            world: World = pickle.loads(before)
            for _ in range(times):
                expected = self._expected(world, calls, luck)
            found = told(self._differences(world, expected, shown, seen))
            if not found:
                is_changed = pickle.dumps(world) != before
                self.world = world
                for call, answer in zip(calls, answers, strict=True):
                    self.counts.note(call.verb, answer, is_changed=is_changed)
                return
            first = first or found
            course = luck.next_course
            if course is None:
                break
        raise self.mismatch(f"was answered: {answers}", *first)

    def _expected(self, world: World, calls: Sequence[Call], luck: Luck) -> list[object]:
        moment = Moment(world, self.now, time.time() * 1000, luck)
        expected: list[object] = []
        for call in calls:
            try:
                expected.append(VERBS[call.verb](moment, *call.arguments, *call.damage, **call.named))
            except Refusal as refusal:
                expected.append(refusal)
        forget_empty_lanes(world)
        return expected

    def _differences(
        self, world: World, expected: list[object], answers: list[object] | None, seen: Seen
    ) -> Iterator[str]:
        if answers is not None:
            yield from differences(_comparable(expected), _comparable(answers), "answer")
        yield from differences(world, seen.world, "stored")
        yield from differences(indexes(world), seen.indexes, "index")
        yield from seen.oddities

    # ---- the end ----

    def check_invariants(self) -> None:
        """Of an example that has failed that is known already."""
        if self.has_failed:
            return
        found = self.server.run(self._check())
        if found:
            raise self.mismatch("what is stored breaks invariants:", *found)

    async def _check(self) -> list[str]:
        async with self.server.dial.client() as client:
            found = await check(client, Keys(self.prefix))
        return [f"{one.rule}: {one.subject} {one.detail}" for one in found]

    def close(self) -> None:
        self.server.run(self._close())

    async def _close(self) -> None:
        await self._pipeline.stop()
        script = "for _, key in ipairs(redis.call('KEYS', KEYS[1] .. ':*')) do redis.call('UNLINK', key) end"
        await self.server.wire.ask([pack("EVAL", script, 1, self.prefix)], 1)


def _comparable(answers: list[object]) -> list[object]:
    """Refusals by what they are and name."""
    return [(type(one).__name__, one.details) if isinstance(one, Refusal) else one for one in answers]


def shown_alike(answer: object) -> object:
    """An answer as two of them are compared."""
    [comparable] = _comparable([_sorted(answer)])
    return comparable


def _sorted(answer: object) -> object:
    """An answer with what Redis keeps in no order in that of the model."""
    match answer:
        case Registered():
            return replace(answer, retired=tuple(sorted(answer.retired)))
        case Run():
            return replace(answer, waiting_for=tuple(sorted(answer.waiting_for, key=lambda one: one.step_name)))
        case Suspended():
            steps = sorted(answer.resolutions, key=lambda step: (step.resolved_seq, step.name))
            return replace(answer, resolutions=tuple(steps))
        case StepRecorded():
            rivals = sorted(answer.rivals_over, key=lambda step: (step.resolved_seq, step.name))
            return replace(answer, rivals_over=tuple(rivals))
        case _:
            return answer


def _likely(seen: World) -> Callable[[str, object], tuple[float, ...]]:
    """What was picked is gone afterwards; of waits the outcomes are numbered, and the lanes that filled."""

    def rank(kind: str, one: object) -> tuple[float, ...]:
        what, _, run_id = kind.partition(" ")
        run = seen.runs.get(run_id)
        if run is None:
            return (0,)
        if what == "wake":
            assert isinstance(one, tuple)
            parent = seen.runs.get(one[0])
            step = parent.steps.get(one[1]) if parent else None
            order = step.resolved or float("inf") if step else 0
            change = seen.lane_changes.get(parent.lane, 0) if parent else 0
            return (one in run.awaiters, order, change)
        return (one in (run.waits if what == "withdraw" else run.children),)

    return rank
