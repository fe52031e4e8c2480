"""Script calls made in the same turn of the loop go together; answers come as futures. Those of the same script share
one call of it, if it takes many (BATCH): the cost of a script's start is paid once for all.

A few batches are under way at a time, so that Redis works on one while the gateway deals with another, and calls of one
run only in one of them. A call that must not overtake (ORDER last) waits for the answers of all earlier calls of its
run, so a lost or refused one cannot be passed by a later one. When the connection breaks, calls that may be repeated
are sent again, in order and before all others; a claim is not. While Redis is away, calls fail at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, count, repeat
from typing import Final, TypeVar

import hiredis

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.store.batches import Batch, Call, Command, grouped, packed
from redflow_server.store.refusals import ENDS_CONNECTION, Refusals, code_of, refusal_of
from redflow_server.store.scripts import Script
from redflow_server.store.wire import Argument, BrokenWire, Dial, Reply, Wire, end, pack

T = TypeVar("T")

log = logging.getLogger("redflow.store")

BATCHES: Final = 4
"""Under way at a time."""
BATCH_CALLS: Final = 512
QUEUE_CALLS: Final = 100_000
TRIES: Final = 4
SILENT_S: Final = 3.0
"""Whoever does not answer for so long is silent, which is said."""
ANSWER_TIMEOUT_S: Final = 10.0
REDIAL_S: Final = (0.02, 0.1, 0.25, 0.5, 1.0)
PATIENCE_TRIES: Final = 3
"""Calls wait through so many failed dials, about a third of a second, before they fail."""
PATIENCE_S: Final = 2.0
"""And for so long where a dial is not answered at all."""


class ScriptFault(Exception):
    """A script raised: a fault of ours, or of a hand that wrote into our keys."""


class Pipeline:
    """One connection to Redis for script calls."""

    def __init__(self, dial: Dial, scripts: Mapping[str, Script], prefix: str) -> None:
        self._dial = dial
        self._scripts = scripts
        self._prefix = prefix
        self._queue: deque[Call] = deque()
        self._is_awake = False
        self._under_way: deque[Batch] = deque()
        self._wire: Wire | None = None
        self._is_spoiled = False
        self._away_because: str | None = None
        self._refusals = Refusals()
        self._is_silent = False
        self._is_stopped = False
        self._dialing: asyncio.Task[None] | None = None
        self._too_late: asyncio.TimerHandle | None = None

    @property
    def is_away(self) -> bool:
        """Whether Redis was unreachable when last tried."""
        return self._away_because is not None

    @property
    def is_fit(self) -> bool:
        """Whether Redis is there, answers, and refuses at most starts."""
        return not (self.is_away or self._is_silent or self._refusals.keep_from_work)

    @property
    def is_refused(self) -> bool:
        """Whether Redis has refused calls, and is not known to take them again."""
        return bool(self._refusals)

    async def start(self) -> None:
        """Connects and loads the scripts. Raises StoreUnavailable."""
        self._wire = await self._connect()

    async def stop(self) -> None:
        """Ends the connection; calls under way fail, and later ones."""
        self._is_stopped = True
        if self._dialing is not None:
            await end(self._dialing)
        self._fail(self._taken_back(), StoreUnavailable("the gateway stops"))
        self._fail(self._queue, StoreUnavailable("the gateway stops"))
        self._queue.clear()
        if self._wire is not None:
            self._wire.close()

    def call(
        self,
        name: str,
        arguments: Sequence[Argument],
        read: Callable[[Reply], T],
        *,
        run_id: str = "",
        payload_bytes: int = 0,
    ) -> asyncio.Future[T]:
        """Calls a script with the current time as its first argument.

        `run_id` is the run whose calls keep their order, `payload_bytes` about how large the arguments are.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._is_stopped or self.is_away or len(self._queue) >= QUEUE_CALLS:
            future.set_exception(StoreUnavailable())
            return future
        script = self._scripts[name]
        assert len(arguments) == len(script.arguments) or (
            script.tail and len(arguments) > len(script.arguments) - 1
        ), name
        self._queue.append(Call(script, run_id, arguments, read, future, payload_bytes))
        self._wake()
        return future

    def _wake(self) -> None:
        """Sends, once in this turn of the loop, what may be sent."""
        if not self._is_awake:
            self._is_awake = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_awake = False
        if self._dialing is not None or len(self._under_way) >= BATCHES:
            return
        if self._wire is None or self._wire.ended.done() or self._is_spoiled:
            if self._queue and not self._under_way:
                self._dial_anew()
            return
        calls = self._next_batch()
        commands = self._commands(calls)
        if calls and self._queue:
            self._wake()
        if commands:
            asked = self._wire.ask((command.packed for command in commands), len(commands))
            runs = frozenset(call.run_id for command in commands for call in command.calls if call.run_id)
            batch = Batch(commands, runs)
            self._under_way.append(batch)
            if len(self._under_way) == 1:
                self._set_time()
            asked.add_done_callback(partial(self._answered, batch))

    def _next_batch(self) -> list[Call]:
        batch: list[Call] = []
        held: list[Call] = []
        runs: set[str] = set()
        closed_runs = set[str]().union(*(under_way.runs for under_way in self._under_way))
        queue = self._queue
        while queue and len(batch) < BATCH_CALLS:
            call = queue.popleft()
            run_id = call.run_id
            if run_id:
                goes_last = call.script.goes_last
                if run_id in closed_runs or (goes_last and run_id in runs):
                    closed_runs.add(run_id)
                    held.append(call)
                    continue
                runs.add(run_id)
                if goes_last:
                    closed_runs.add(run_id)
            batch.append(call)
        queue.extendleft(reversed(held))
        return batch

    def _answered(self, batch: Batch, asked: asyncio.Future[list[Reply]]) -> None:
        error = asked.exception()
        if batch not in self._under_way:
            return
        if isinstance(error, BrokenWire):
            again = self._settle(batch.commands[: len(error.replies)], error.replies)
            batch.commands = batch.commands[len(error.replies) :]
            self._lost(again, self._taken_back())
            self._dial_anew()
        else:
            self._under_way.remove(batch)
            self._set_time()
            if self._is_silent:
                self._came_back()
            if self._refusals:
                scripts = (command.calls[0].script.name for command in batch.commands)
                self._refusals.answered(zip(scripts, asked.result(), strict=True))
            self._send_again(self._settle(batch.commands, asked.result()))
            self._wake()

    def _set_time(self) -> None:
        """The batch that is to be answered next has its time from now on: Redis works on one after the other."""
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None
        if self._under_way and self._wire is not None:
            self._too_late = asyncio.get_running_loop().call_later(SILENT_S, self._fall_silent, self._wire)

    def _fall_silent(self, wire: Wire) -> None:
        log.warning("redis has not answered for %g s", SILENT_S)
        self._is_silent = True
        self._too_late = asyncio.get_running_loop().call_later(ANSWER_TIMEOUT_S - SILENT_S, wire.close)

    def _taken_back(self) -> list[Call]:
        """All calls that are under way: their answers are not waited for any more."""
        calls = [call for batch in self._under_way for command in batch.commands for call in command.calls]
        self._under_way.clear()
        self._set_time()
        return calls

    def _commands(self, batch: list[Call]) -> list[Command]:
        """The batch as commands; a call that cannot be packed fails by itself."""
        commands: list[Command] = []
        for group in grouped(batch):
            try:
                commands.append(Command(group, packed(self._prefix, group)))
            except (UnicodeError, TypeError, ValueError) as error:
                if len(group) == 1:
                    self._fail(group, ScriptFault(f"{group[0].script.name}: cannot be sent: {error}"))
                else:
                    commands += (command for call in group for command in self._commands([call]))
        return commands

    def _settle(self, commands: list[Command], replies: list[Reply]) -> list[Call]:
        """Answers calls; those that are to be sent again are left."""
        again: list[Call] = []
        for command, reply in zip(commands, replies, strict=False):
            calls = command.calls
            if isinstance(reply, hiredis.ReplyError) or not calls[0].script.takes_many:
                self._settle_calls(calls, [reply] * len(calls), again)
            else:
                self._settle_calls(calls, reply, again)
        return again

    def _settle_calls(self, calls: list[Call], replies: list[Reply], again: list[Call]) -> None:
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, hiredis.ReplyError):
                if self._refused(call, str(reply)):
                    again.append(call)
            else:
                _answer(call, reply)

    def _refused(self, call: Call, message: str) -> bool:
        """Deals with an error reply; says whether the call is to be sent again."""
        if message.startswith("NOSCRIPT") and call.tries < 5 * TRIES:
            # All are loaded, not only this one: else a later call of the same run could pass an earlier one.
            self._is_spoiled = True
            return True
        refusal = refusal_of(message)
        if refusal is None:
            self._fail([call], ScriptFault(f"{call.script.name}: {message}"))
            return False
        self._refusals.met(call.script.name, message)
        self._is_spoiled = self._is_spoiled or code_of(message) in ENDS_CONNECTION
        self._fail([call], refusal)
        if isinstance(refusal, StoreUnavailable):
            self._fail_behind([call], refusal)
        return False

    def _lost(self, again: list[Call], unanswered: list[Call]) -> None:
        """The connection broke: repeats what may be repeated, after `again`, once there is a new one."""
        lost = [call for call in unanswered if not (call.script.is_repeatable and call.tries < TRIES)]
        error = StoreUnavailable("the connection to Redis broke; the call may have been executed")
        self._fail(lost, error)
        self._fail_behind(lost, error)
        self._send_again([*again, *(call for call in unanswered if not call.future.done())])

    def _dial_anew(self) -> None:
        """Nothing is sent until there is a new connection, which has the scripts."""
        if self._wire is not None:
            self._wire.close()
        self._wire, self._is_spoiled = None, False
        self._dialing = asyncio.create_task(self._dial_until_connected(), name="store-dial")

    async def _dial_until_connected(self) -> None:
        silent = StoreUnavailable("Redis does not answer")
        impatient = asyncio.get_running_loop().call_later(PATIENCE_S, self._went_away, silent)
        try:
            for number, delay_s in zip(count(), chain((0.0, *REDIAL_S), repeat(REDIAL_S[-1])), strict=False):
                await asyncio.sleep(delay_s)
                try:
                    self._wire = await self._connect()
                    break
                except (OSError, StoreUnavailable) as error:
                    if number >= PATIENCE_TRIES:
                        impatient.cancel()
                        self._went_away(error)
        finally:
            impatient.cancel()
        self._dialing = None
        self._wake()

    def _went_away(self, error: Exception) -> None:
        if self._away_because != str(error):
            log.warning("redis is away: %s", error)
        self._away_because = str(error)
        self._fail(self._queue, StoreUnavailable())
        self._queue.clear()

    async def _connect(self) -> Wire:
        wire = await self._dial.wire()
        scripts = [pack("SCRIPT", "LOAD", script.source) for script in self._scripts.values()]
        try:
            # Some versions hang up on scripts of one that is not logged in, without a word.
            for commands in ([pack("PING")], scripts):
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    replies = await wire.ask(commands, len(commands))
                if error := next((reply for reply in replies if isinstance(reply, hiredis.ReplyError)), None):
                    wire.close()
                    raise StoreUnavailable(f"Redis refuses a gateway: {error}")
        except (BrokenWire, TimeoutError) as broken:
            wire.close()
            raise StoreUnavailable("Redis does not answer") from broken
        self._came_back()
        return wire

    def _came_back(self) -> None:
        """It has answered, whatever it did before."""
        if self.is_away:
            log.warning("redis is back")
        elif self._is_silent:
            log.warning("redis answers again")
        self._away_because, self._is_silent = None, False

    def _send_again(self, calls: list[Call]) -> None:
        for call in reversed(calls):
            call.tries += 1
            self._queue.appendleft(call)
        self._wake()

    def _fail_behind(self, calls: list[Call], error: Exception) -> None:
        """Fails what waits behind failed calls of the same runs: nothing may pass them."""
        runs = {call.run_id for call in calls if call.run_id}
        behind = [call for call in self._queue if call.run_id in runs]
        if behind:
            self._fail(behind, error)
            self._queue = deque(call for call in self._queue if call.run_id not in runs)

    def _fail(self, calls: Iterable[Call], error: Exception) -> None:
        for call in calls:
            if not call.future.done():
                call.future.set_exception(error)


def _answer(call: Call, reply: Reply) -> None:
    if call.future.done():
        return
    try:
        call.future.set_result(call.read(reply))
    except Exception as error:  # a reader may refuse; and a fault in one must not stop the calls of all others
        call.future.set_exception(error)
