"""Waits and the runs that steps start, from messages to values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.errors import InvalidInput
from redflow_server.domain.ids import RUN_ID, counted, run_id_for
from redflow_server.domain.leases import ClosePolicy
from redflow_server.domain.names import MAX_WAITS, Limits, check_label, check_name
from redflow_server.domain.payloads import EMPTY_OBJECT
from redflow_server.domain.runs import DEFAULT_IDEMPOTENCY_TTL_MS, NewRun, check_new_run
from redflow_server.domain.tokens import new_token
from redflow_server.domain.waits import ChildWait, EventWait, TimerWait, TokenWait, Wait
from redflow_server.rpc import convert

CLOSE_POLICY_OF: Final = {worker_pb2.PARENT_CLOSE_POLICY_CANCEL: ClosePolicy.CANCEL}


class WaitReader:
    """Makes waits of messages. Every method raises InvalidInput or PayloadTooLarge for what makes no sense."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def waits(self, run_id: str, messages: Iterable[worker_pb2.Wait]) -> tuple[Wait, ...]:
        """All waits of an item, which are of different steps."""
        waits = tuple(self._wait(run_id, message) for message in messages)
        if not 1 <= len(waits) <= MAX_WAITS:
            raise InvalidInput("waits", f"must be 1 to {MAX_WAITS}", len(waits))
        twice = [name for name, count in Counter(wait.name for wait in waits).items() if count > 1]
        if twice:
            raise InvalidInput("waits", "must be of different steps", f"several of {twice[0]!r}")
        return waits

    def _wait(self, run_id: str, message: worker_pb2.Wait) -> Wait:
        name = check_name("step_name", message.step_name)
        if message.step_seq < 0:
            raise InvalidInput("step_seq", "must not be negative", message.step_seq)
        check_label("group", message.group)
        target: TimerWait | EventWait | ChildWait | TokenWait
        match message.WhichOneof("wait"):
            case "timer":
                target, timeout_ms = _timer(message.timer)
            case "event":
                target = _event(message.event)
                timeout_ms = convert.optional_ms("event.timeout", message.event, "timeout")
            case "child":
                target = ChildWait(self._child(run_id, name, message.child))
                timeout_ms = convert.optional_ms("child.timeout", message.child, "timeout")
            case "token":
                target = TokenWait(new_token(run_id, name))
                timeout_ms = convert.optional_ms("token.timeout", message.token, "timeout")
            case other:
                raise InvalidInput("wait", "must be one of timer, event, child, token", other)
        return Wait(name, message.step_seq, target, message.group, timeout_ms)

    def _child(self, run_id: str, step_name: str, message: worker_pb2.ChildWait) -> NewRun:
        if message.WhichOneof("target") == "run_id":
            if not RUN_ID.fullmatch(message.run_id):
                raise InvalidInput("child.run_id", "must be the id of a run", message.run_id)
            return NewRun(message.run_id, "", EMPTY_OBJECT)
        return self.start(run_id, step_name, message.start)

    def start(self, run_id: str, step_name: str, message: worker_pb2.ChildStart) -> NewRun:
        """A run that a step starts: its id is a function of run and step, so that a repeat of the step starts none."""
        ttl_ms = convert.optional_ms("idempotency_ttl", message, "idempotency_ttl")
        run = NewRun(
            run_id=run_id_for("child", run_id, step_name),
            workflow=message.workflow,
            input=convert.payload_of(message.input) if message.HasField("input") else EMPTY_OBJECT,
            queue=message.queue or None,
            priority=message.priority,
            max_attempts=message.max_attempts or None,
            idempotency_key=message.idempotency_key or None,
            idempotency_ttl_ms=DEFAULT_IDEMPOTENCY_TTL_MS if ttl_ms is None else ttl_ms,
            is_typed=True,
        )
        check_new_run(run, self._limits)
        if run.idempotency_key is None:
            key = f"stepwf:{counted(run_id)}:{counted(step_name)}:{counted(message.workflow)}"
            return replace(run, idempotency_key=key)
        return run


def _timer(message: worker_pb2.TimerWait) -> tuple[TimerWait, int | None]:
    delay_ms = convert.optional_ms("timer.delay", message, "delay")
    if message.HasField("until_time"):
        if delay_ms is not None:
            raise InvalidInput("timer", "must have a delay or a time, not both", f"{delay_ms} ms")
        return TimerWait(convert.at_ms_of("timer.until_time", message.until_time)), None
    if delay_ms is None:
        raise InvalidInput("timer", "must have a delay or a time", None)
    return TimerWait(), delay_ms


def _event(message: worker_pb2.EventWait) -> EventWait:
    check_name("event.event_name", message.event_name)
    key = message.key if message.HasField("key") else None
    check_label("event.key", key or "")
    return EventWait(message.event_name, key)
