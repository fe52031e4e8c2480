"""Runs and where they stand, read from a dump into the model's terms; and how anything is read from one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from redflow_server.domain.ids import counted
from redflow_server.domain.leases import Stamp
from redflow_server.domain.runs import HandlerState
from redflow_server.domain.states import TERMINAL, RunStatus, StepKind, StepStatus
from redflow_server.store import codec
from redflow_server.store.keys import lane_of
from tests.oracle.dump import Dump, size_of
from tests.oracle.model.world import Expiry, OpenWait, RunOnRecord, StepOnRecord, World

NUMBERS: Final = {
    "maxAttempts": "max_attempts",
    "createdAt": "created_at",
    "seq": "seq",
    "priority": "priority",
    "eventSeq": "event_seq",
    "keyExpiresAt": "key_expires_at",
    "place": "place",
    "placedAt": "placed_at",
    "availableAt": "available_at",
    "startedAt": "started_at",
    "finishedAt": "finished_at",
    "attempt": "attempt",
    "failures": "failures",
    "deliveries": "deliveries",
    "fruitful": "fruitful",
    "losses": "losses",
    "lossesTotal": "losses_total",
    "undelivered": "undelivered",
    "resolutions": "resolutions",
    "startDeadline": "start_deadline",
    "runDeadline": "run_deadline",
    "failingDeadline": "failing_deadline",
    "handlerMs": "handler_ms",
    "timeoutRequestedAt": "timeout_requested_at",
    "cancelRequestedAt": "cancel_requested_at",
}
TEXTS: Final = {
    "workflow": "workflow",
    "queue": "queue",
    "inputDigest": "digest",
    "parentRunId": "parent",
    "idempotencyKey": "key",
    "leaseToken": "token",
    "endedToken": "ended_token",
    "endedAs": "ended_as",
    "cancelReason": "cancel_reason",
    "retryPolicy": "retry_policy",
}
FLAGS: Final = {
    "typed": "is_typed",
    "acked": "is_acked",
    "parked": "is_parked",
    "woken": "is_woken",
    "awaited": "is_awaited",
    "solo": "is_solo",
}
DATA: Final = {
    "inputJson": "input",
    "inputMeta": "input_meta",
    "outputJson": "output",
    "outputMeta": "output_meta",
    "errorJson": "error",
    "handlerErrorJson": "handler_error",
}


class Reader:
    """A dump that is read key by key; what was not read at the end is odd."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.oddities: list[str] = []
        self._read: set[bytes] = set()

    def odd(self, what: str) -> None:
        self.oddities.append(what)

    def unread(self) -> Iterator[str]:
        dump = self.dump
        for key in (*dump.strings, *dump.hashes, *dump.sets, *dump.zsets, *dump.streams):
            if key not in self._read:
                yield f"nobody knows the key {key!r}"

    def names(self, kind: Mapping[bytes, object] | Iterable[bytes], start: str, end: str = "") -> list[str]:
        """The variable parts of keys of a type."""
        size = len(start.encode())
        found = [key[size : len(key) - len(end)] for key in kind if key.startswith(start.encode())]
        return sorted(codec.text(one) for one in found if f"{start}{codec.text(one)}{end}".encode() in kind)

    def hash(self, key: str) -> dict[bytes, bytes]:
        self._read.add(key.encode())
        return self.dump.hashes.get(key.encode(), {})

    def string(self, key: str) -> str:
        self._read.add(key.encode())
        return codec.text(self.dump.strings.get(key.encode()))

    def counter(self, key: str) -> int | None:
        raw = self.string(key)
        return int(raw) if raw else None

    def members(self, key: str) -> set[str]:
        self._read.add(key.encode())
        return {codec.text(one) for one in self.dump.sets.get(key.encode(), ())}

    def times(self, key: str) -> dict[str, int]:
        self._read.add(key.encode())
        found = self.dump.zsets.get(key.encode(), {})
        for member, score in found.items():
            if not score.is_integer():
                self.odd(f"{member!r} stands in {key} at {score!r}")
        return {codec.text(member): int(score) for member, score in found.items()}

    def stream(self, key: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        self._read.add(key.encode())
        return self.dump.streams.get(key.encode(), [])

    def expiry(self, key: str) -> Expiry | None:
        at = self.dump.expires_at.get(key.encode())
        return None if at is None else Expiry(at)


def add_runs(reader: Reader, world: World) -> dict[str, object]:
    """Fills in the runs; the indexes of them."""
    leases = reader.times("leases")
    run_ids = [name for name in reader.names(reader.dump.hashes, "run:") if ":" not in name]
    finished = {status.value: reader.times(f"finished:{status}") for status in TERMINAL}
    channels = {name: reader.times(f"event-waits:{name}") for name in reader.names(reader.dump.zsets, "event-waits:")}
    deadlines = reader.times("deadlines")
    for run_id in run_ids:
        run = _run(reader, run_id)
        run.lease_ends_at = leases.get(run_id)
        run.purge_from = finished.get(run.status.value, {}).get(run_id)
        run.look_again_at = _put_off(run, deadlines.get(run_id))
        for name, wait in run.waits.items():
            if wait.kind is StepKind.EVENT:
                wait.number = channels.get(wait.target, {}).get(f"{run_id} {name}")
        world.runs[run_id] = run
    lane_names = reader.names(reader.dump.zsets, "lane:")
    statuses = {status.value: reader.times(f"runs:status:{status}") for status in RunStatus}
    by_workflow = {
        (status.value, name): reader.times(f"workflow-runs:{status}:{name}")
        for status in RunStatus
        for name in reader.names(reader.dump.zsets, f"workflow-runs:{status}:")
    }
    return {
        "deadlines": deadlines,
        "scheduled": reader.times("scheduled"),
        "leases": leases,
        "timers": reader.times("timers"),
        "lanes": {lane_of(name): reader.times(f"lane:{name}") for name in lane_names},
        "status": {status: runs for status, runs in statuses.items() if runs},
        "status and workflow": by_workflow,
        "finished": {status: runs for status, runs in finished.items() if runs},
        "event waits": channels,
    }


def _put_off(run: RunOnRecord, at: int | None) -> int | None:
    """A run whose start deadline passed while it was on its way is looked at again later than that."""
    return at if at is not None and run.start_deadline is not None and at > run.start_deadline else None


def _run(reader: Reader, run_id: str) -> RunOnRecord:
    fields = {codec.text(name): value for name, value in reader.hash(f"run:{run_id}").items()}
    data = {codec.text(name): value for name, value in reader.hash(f"run:{run_id}:data").items()}
    run = RunOnRecord(run_id, "", "", RunStatus(codec.text(fields.pop("status"))), 1, 0, 0, "", b"")
    for name, field in NUMBERS.items():
        if name in fields:
            setattr(run, field, int(fields.pop(name)))
    for name, field in TEXTS.items():
        setattr(run, field, codec.text(fields.pop(name, b"")))
    for name, field in FLAGS.items():
        setattr(run, field, fields.pop(name, b"") == b"1")
    for name, field in DATA.items():
        if name in data:
            setattr(run, field, data.pop(name))
    run.waiters = codec.text(fields.pop("waiters", b"")).split()
    run.cancel_request_ids = [one for one in codec.text(fields.pop("cancelRequestIds", b"")).split("\n") if one]
    run.is_failing = fields.pop("phase", b"") == b"failing"
    if "failureHandler" in fields:
        run.failure_handler = HandlerState(codec.text(fields.pop("failureHandler")))
    if "leaseOwner" in fields:
        session, epoch, gateway = codec.text(fields.pop("leaseOwner")).split(" ")
        run.stamp = Stamp(session, int(epoch), gateway)
    _add_steps(reader, run)
    _compare_counts(reader, run, fields)
    for name in (*fields, *data):
        reader.odd(f"run {run_id} has a field {name!r}")
    return run


def _add_steps(reader: Reader, run: RunOnRecord) -> None:
    stored = reader.hash(f"run:{run.id}:steps")
    for name, value in stored.items():
        if name.startswith(b"s:"):
            run.steps[codec.text(name[2:])] = _step(reader, run, name, value, stored.get(b"o:" + name[2:]))
        elif not (name.startswith(b"o:") and b"s:" + name[2:] in stored):
            reader.odd(f"run {run.id} has {name!r} among its steps")
    for name, entry in reader.hash(f"run:{run.id}:waits").items():
        kind, since, deadline, rest = codec.text(entry).split("|", 3)
        size, _, tail = rest.encode().partition(b":")
        group, target = tail[: int(size)].decode(), tail[int(size) :].decode()
        assert f"{counted(group)}{target}" == rest
        at = int(deadline) if deadline else None
        run.waits[codec.text(name)] = OpenWait(StepKind(kind), int(since), at, group, target)
    for member in reader.members(f"run:{run.id}:awaiters"):
        parent, _, step = member.partition(" ")
        run.awaiters.add((parent, step))
    run.children = reader.members(f"run:{run.id}:children")
    cursors = reader.hash(f"run:{run.id}:cursors")
    run.cursors = {codec.text(channel): int(number) for channel, number in cursors.items()}


def _step(reader: Reader, run: RunOnRecord, name: bytes, header: bytes, value: bytes | None) -> StepOnRecord:
    status, kind, seq, attempt, final, started, finished, size, tries, resolved, target, meta = header.split(b"|", 11)
    if value is None or int(size) != size_of(value):
        reader.odd(f"run {run.id} has a step {name!r} whose value is not of {size!r} bytes")
    return StepOnRecord(
        status=StepStatus(status.decode()),
        kind=StepKind(kind.decode()),
        seq=int(seq),
        attempt=int(attempt),
        started_at=codec.number(started),
        finished_at=codec.number(finished),
        is_final=final == b"1",
        tries=codec.number(tries) or 0,
        resolved=codec.number(resolved) or 0,
        target=codec.text(target),
        meta=meta,
        value=value or b"",
    )


def _compare_counts(reader: Reader, run: RunOnRecord, fields: dict[str, bytes]) -> None:
    """What the record counts, and what is there; of a run that has ended no more is said than of its steps."""
    is_open = not run.has_ended
    counted_here = {
        "stepsDone": run.steps_done,
        "stepsBytes": sum(size_of(step.value) for step in run.steps.values()) if is_open else 0,
        "openWaits": len(run.waits) if is_open else 0,
        "children": int(bool(run.children)) if is_open else 0,
        "cursors": int(bool(run.cursors)) if is_open else 0,
    }
    for name, count in counted_here.items():
        said = int(fields.pop(name, b"0"))
        if said != count:
            reader.odd(f"run {run.id} has {count} as {name}, but its record says {said}")
