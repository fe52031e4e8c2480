"""What one delivery gives its handler: the one place where functions, waits, effects and races of steps meet."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Mapping, Sequence
from typing import TypeVar

from redflow_sdk import _race
from redflow_sdk._around import AroundRun
from redflow_sdk._handler_thread import HandlerThread
from redflow_sdk._names import check_name
from redflow_sdk._open_waits import MAX_WAITS
from redflow_sdk._retries import Rest
from redflow_sdk._step_calls import ChildCall, EmitCall, StepCall, WaitCall
from redflow_sdk._step_gate import StepGate
from redflow_sdk._step_log import StepLog
from redflow_sdk._steps import FunctionSteps
from redflow_sdk._suspension import Suspension
from redflow_sdk._threads import Threads
from redflow_sdk._types import Value
from redflow_sdk._wait_steps import WaitSteps
from redflow_sdk.errors import InvalidInputError
from redflow_sdk.records import Raced

T = TypeVar("T")


class DeliverySteps:
    """The steps of a delivery. What passes a coroutine on adds none of its own, for every step comes by here."""

    def __init__(self, log: StepLog, threads: Threads, suspension: Suspension, around: AroundRun, rest: Rest) -> None:
        self.suspension = suspension
        self.describe = log.sealing.describe
        self._gate = StepGate(log, suspension)
        self._waits = WaitSteps(log, self._gate, suspension, around)
        self._functions = FunctionSteps(log, self._gate, threads, suspension, self._waits, around=around, rest=rest)
        self._thread = HandlerThread(suspension)

    @property
    def is_stopped(self) -> bool:
        """Whether the handler has to end."""
        return self._gate.is_stopped

    def close(self) -> None:
        """The handler has ended: no step begins any more, and no wait goes on."""
        self._gate.close()

    def cancel_for_threads(self) -> None:
        """Cancels what a handler in a thread waits for."""
        self._thread.cancel()

    def run_step(self, call: StepCall) -> Coroutine[Value, Value, Value]:
        """The step's value: what the function returns, or what is on record."""
        return self._functions.run(call)

    def run_step_in_thread(self, call: StepCall) -> Value:
        """The same for a handler in a thread."""
        if inspect.iscoroutinefunction(call.function):
            return self.on_loop(self._functions.run(call))
        return self._functions.run_in_thread(call, self._thread)

    def wait(self, call: WaitCall) -> Coroutine[Value, Value, Value]:
        """What the step waits for."""
        return self._waits.wait(call)

    def token(self, name: str, timeout: float | None) -> Coroutine[Value, Value, str]:
        """The token of a step, which waits from now on."""
        return self._waits.token(name, timeout)

    def completed(self, call: WaitCall) -> Coroutine[Value, Value, Value]:
        """What the token of a step was completed with."""
        return self._waits.completed(call)

    def start(self, call: ChildCall) -> Coroutine[Value, Value, str]:
        """The id of a run that the step starts."""
        return self._waits.start(call)

    def emit(self, call: EmitCall) -> Coroutine[Value, Value, list[str]]:
        """The runs that an event starts."""
        return self._waits.emit(call)

    async def race(
        self, name: str, members: Mapping[str, Coroutine[Value, Value, Value]], unnamed: Sequence[Value]
    ) -> Raced[Value]:
        """The first of the members to end; what came without a name is none."""
        try:
            check_name("race name", name)
            if _race.current_member() is not None:
                raise InvalidInputError(f"race {name!r} cannot be a member of another one; each member is one step")
            if unnamed:
                raise InvalidInputError(
                    f"race {name!r} takes each member by a name, which becomes its `winner`, such as "
                    f"late=ctx.step.sleep(...); got {len(unnamed)} without one"
                )
            if not 2 <= len(members) <= MAX_WAITS:
                raise InvalidInputError(f"a race must have 2 to {MAX_WAITS} members; got {len(members)}")
            for label, member in members.items():
                if not inspect.iscoroutine(member):
                    raise InvalidInputError(
                        f"member {label!r} must be a step, not awaited; got {type(member).__name__}"
                    )
        except InvalidInputError:
            for member in (*members.values(), *unnamed):
                if inspect.iscoroutine(member):
                    member.close()
            raise
        return await _race.race(name, members)

    def on_loop(self, work: Coroutine[Value, Value, T]) -> T:
        """What a coroutine comes to, for a handler in a thread."""
        return self._thread.on_loop(work)
