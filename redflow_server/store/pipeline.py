"""Script calls made in the same turn of the loop share one round trip; answers come as futures. Those of the same
script share one call of it, if it takes many (BATCH): the cost of a script's start is paid once for all.

One batch is under way at a time. A call that must not overtake (ORDER last) waits for the answers of all earlier calls
of its run, so a lost or refused one cannot be passed by a later one. When the connection breaks, calls that may be
repeated are sent again, in order and before all others; a claim is not. While Redis is away, calls fail at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import hiredis

from redflow_server.domain.errors import StoreFull, StoreUnavailable
from redflow_server.store.scripts import Script
from redflow_server.store.wire import Argument, BrokenWire, Dial, Reply, Wire, end, pack

T = TypeVar("T")

log = logging.getLogger("redflow.store")

BATCH_CALLS: Final = 512
SCRIPT_ITEMS: Final = 64
SCRIPT_BYTES: Final = 1024 * 1024
QUEUE_CALLS: Final = 100_000
TRIES: Final = 4
ANSWER_TIMEOUT_S: Final = 10.0
REDIAL_S: Final = (0.02, 0.1, 0.25, 0.5, 1.0)
PATIENCE_TRIES: Final = 3
"""Calls wait through so many failed dials, about a third of a second, before they fail."""

_AWAY: Final = (
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "READONLY",
    "MISCONF",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "UNBLOCKED",
    "NOREPLICAS",
)


class ScriptFault(Exception):
    """A script raised: a fault of ours, or of a hand that wrote into our keys."""


@dataclass(slots=True, eq=False)
class Call:
    """A script call on its way."""

    script: Script
    run_id: str
    arguments: Sequence[Argument]
    read: Callable[[Reply], Any]  # Any: the type of the answer, which the future carries
    future: asyncio.Future[Any]  # Any: as above
    payload_bytes: int
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    """What goes over the wire: one call, or several of one script."""

    calls: list[Call]
    packed: bytes


class Pipeline:
    """One connection to Redis for script calls."""

    def __init__(self, dial: Dial, scripts: Mapping[str, Script], prefix: str) -> None:
        self._dial = dial
        self._scripts = scripts
        self._prefix = prefix
        self._queue: deque[Call] = deque()
        self._filled = asyncio.Event()
        self._under_way: list[Call] = []
        self._wire: Wire | None = None
        self._is_away = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_away(self) -> bool:
        """Whether Redis was unreachable when last tried."""
        return self._is_away

    async def start(self) -> None:
        """Connects and loads the scripts. Raises StoreUnavailable."""
        self._wire = await self._connect()
        self._task = asyncio.create_task(self._work(), name="store-pipeline")

    async def stop(self) -> None:
        """Ends the connection; calls under way fail."""
        if self._task is not None:
            await end(self._task)
        if self._wire is not None:
            await self._wire.close()
        self._fail([*self._under_way, *self._queue], StoreUnavailable("the gateway stops"))
        self._queue.clear()

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
        if self._is_away or len(self._queue) >= QUEUE_CALLS:
            future.set_exception(StoreUnavailable())
            return future
        script = self._scripts[name]
        assert len(arguments) == len(script.arguments) or (
            script.tail and len(arguments) > len(script.arguments) - 1
        ), name
        self._queue.append(Call(script, run_id, arguments, read, future, payload_bytes))
        self._filled.set()
        return future

    async def _work(self) -> None:
        while True:
            await self._filled.wait()
            batch = self._next_batch()
            if not self._queue:
                self._filled.clear()
            if batch:
                await self._round_trip(batch)

    def _next_batch(self) -> list[Call]:
        batch: list[Call] = []
        held: list[Call] = []
        runs: set[str] = set()
        closed_runs: set[str] = set()
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

    async def _round_trip(self, batch: list[Call]) -> None:
        commands = self._commands(batch)
        self._under_way = [call for command in commands for call in command.calls]
        try:
            if self._wire is None:
                self._wire = await self._connect()
            self._wire.send(command.packed for command in commands)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                replies = await self._wire.replies(len(commands))
        except BrokenWire as broken:
            self._settle(commands, broken.replies)
            await self._lost([call for command in commands[len(broken.replies) :] for call in command.calls])
        except (TimeoutError, OSError, StoreUnavailable):
            await self._lost(self._under_way)
        else:
            self._settle(commands, replies)
        self._under_way = []

    def _commands(self, batch: list[Call]) -> list[Command]:
        """The batch as commands; a call that cannot be packed fails by itself."""
        commands: list[Command] = []
        for group in _grouped(batch):
            try:
                commands.append(Command(group, self._packed(group)))
            except (UnicodeError, TypeError, ValueError) as error:
                if len(group) == 1:
                    self._fail(group, ScriptFault(f"{group[0].script.name}: cannot be sent: {error}"))
                else:
                    commands += (command for call in group for command in self._commands([call]))
        return commands

    def _packed(self, group: list[Call]) -> bytes:
        script = group[0].script
        if not script.takes_many:
            return pack("EVALSHA", script.sha, 1, self._prefix, *group[0].arguments)
        # The first argument of all items is the time.
        command: list[Argument] = ["EVALSHA", script.sha, 1, self._prefix, group[0].arguments[0]]
        for call in group:
            command.append(len(call.arguments) - 1)
            command += call.arguments[1:]
        return pack(*command)

    def _settle(self, commands: list[Command], replies: list[Reply]) -> None:
        again: list[Call] = []
        for command, reply in zip(commands, replies, strict=False):
            calls = command.calls
            if isinstance(reply, hiredis.ReplyError) or not calls[0].script.takes_many:
                self._settle_calls(calls, [reply] * len(calls), again)
            else:
                self._settle_calls(calls, reply, again)
        if again:
            self._send_again(again)

    def _settle_calls(self, calls: list[Call], replies: list[Reply], again: list[Call]) -> None:
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, hiredis.ReplyError):
                if self._refused(call, str(reply)):
                    again.append(call)
            else:
                _answer(call, reply)

    def _refused(self, call: Call, message: str) -> bool:
        """Deals with an error reply; says whether the call is to be sent again."""
        if message.startswith("NOSCRIPT") and call.tries < TRIES:
            # All are loaded, not only this one: else a later call of the same run could pass an earlier one.
            self._drop_wire()
            return True
        error: Exception
        refused_for_now = message.startswith(_AWAY)
        if "OOM" in message[:200] and "maxmemory" in message:
            error = StoreFull()
        elif refused_for_now:
            error = StoreUnavailable(f"Redis refuses for now: {message}")
            if message.startswith("READONLY"):
                self._drop_wire()
        else:
            error = ScriptFault(f"{call.script.name}: {message}")
        self._fail([call], error)
        if refused_for_now:
            self._fail_behind([call], error)
        return False

    def _drop_wire(self) -> None:
        """The next round trip connects anew, which loads the scripts."""
        if self._wire is not None:
            self._closing = asyncio.create_task(self._wire.close())
            self._wire = None

    async def _lost(self, unanswered: list[Call]) -> None:
        """The connection broke: repeats what may be repeated, once there is a new one."""
        self._drop_wire()
        lost = [call for call in unanswered if not (call.script.is_repeatable and call.tries < TRIES)]
        error = StoreUnavailable("the connection to Redis broke; the call may have been executed")
        self._fail(lost, error)
        self._fail_behind(lost, error)
        self._send_again([call for call in unanswered if not call.future.done()])
        for number, delay_s in enumerate((0.0, *REDIAL_S)):
            await asyncio.sleep(delay_s)
            try:
                self._wire = await self._connect()
            except (OSError, StoreUnavailable) as error:
                if number == PATIENCE_TRIES:
                    self._went_away(error)
            else:
                return
        await self._redial()

    def _went_away(self, error: Exception) -> None:
        if not self._is_away:
            log.warning("redis is away: %s", error)
        self._is_away = True
        self._fail(self._queue, StoreUnavailable())
        self._queue.clear()

    async def _redial(self) -> None:
        while self._wire is None:
            await asyncio.sleep(REDIAL_S[-1])
            try:
                self._wire = await self._connect()
            except (OSError, StoreUnavailable):
                continue

    async def _connect(self) -> Wire:
        wire = await self._dial.wire()
        try:
            wire.send(pack("SCRIPT", "LOAD", script.source) for script in self._scripts.values())
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                replies = await wire.replies(len(self._scripts))
        except (BrokenWire, TimeoutError, OSError) as error:
            await wire.close()
            raise StoreUnavailable("Redis does not answer") from error
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                await wire.close()
                raise StoreUnavailable(f"Redis does not load scripts: {reply}")
        if self._is_away:
            log.warning("redis is back")
            self._is_away = False
        return wire

    def _send_again(self, calls: list[Call]) -> None:
        for call in reversed(calls):
            call.tries += 1
            self._queue.appendleft(call)
        self._filled.set()

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


def _grouped(batch: list[Call]) -> list[list[Call]]:
    """The calls of each script that takes many, as many together as it may get; every other call by itself. Those of a
    run keep their order, whatever their scripts.
    """
    groups: list[list[Call]] = []
    sizes: list[int] = []
    open_at: dict[str, int] = {}
    last_of_run: dict[str, int] = {}
    for call in batch:
        script, run_id = call.script, call.run_id
        at = open_at.get(script.name, -1)
        is_full = at < 0 or len(groups[at]) >= SCRIPT_ITEMS or sizes[at] + call.payload_bytes > SCRIPT_BYTES
        if is_full or (run_id and last_of_run.get(run_id, -1) > at):
            at = len(groups)
            groups.append([])
            sizes.append(0)
            if script.takes_many:
                open_at[script.name] = at
        groups[at].append(call)
        sizes[at] += call.payload_bytes
        if run_id:
            last_of_run[run_id] = at
    return groups
