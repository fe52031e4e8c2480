"""What may be wrong with what is stored of the scene of `scene.py`, and which rules have to tell of it. Those of waits
and events are in `faults_of_waits.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.builders import START_MS
from tests.store.scene import HOUR_MS


@dataclass(frozen=True)
class Fault:
    """Commands that plant it, with `P` for the prefix and `~` for a space in a word; the rules that tell of it, by the
    subject they name.
    """

    name: str
    plant: tuple[str, ...]
    found: tuple[tuple[str, str], ...]


def a_fault(rule: str, subject: str, name: str, *plant: str, also: tuple[tuple[str, str], ...] = ()) -> Fault:
    return Fault(f"{rule}: {name}", plant, ((rule, subject), *also))


FAULTS_OF_RUNS: Final = (
    a_fault("one-place", "queued", "a queued run in no lane", "ZREM P:lane:1:q:1:w queued"),
    a_fault("one-place", "scheduled", "a scheduled run that never becomes due", "ZREM P:scheduled scheduled"),
    a_fault(
        "one-place", "running", "a running run whose lease never ends", "ZREM P:leases running",
        also=(("token-iff-leased", "running"),),
    ),
    a_fault(
        "one-place", "queued", "a queued run that is scheduled too", "ZADD P:scheduled 5 queued",
        also=(("placed-runs-match", "queued"),),
    ),
    a_fault(
        "one-place", "queued", "a queued run in two lanes", "ZADD P:lane:1:q:5:timed 5 queued",
        also=(("placed-runs-match", "queued"),),
    ),
    a_fault(
        "one-place", "waiting", "a waiting run that is scheduled too", "ZADD P:scheduled 5 waiting",
        also=(("placed-runs-match", "waiting"),),
    ),
    a_fault(
        "one-place", "waiting", "a run that waits for nothing", "DEL P:run:waiting:waits",
        also=(("waits", "waiting"), ("waits", "child")),
    ),
    a_fault("placed-runs-match", "queued", "one to be delivered alone beside others", "HSET P:run:queued solo 1"),
    a_fault("placed-runs-match", "ghost", "no record of what is scheduled", "ZADD P:scheduled 5 ghost"),
    a_fault("placed-runs-match", "ghost", "no record of what is leased", "ZADD P:leases 5 ghost"),
    a_fault("placed-runs-match", "ghost", "no record of what is queued", "ZADD P:lane:1:q:1:w 5 ghost"),
    a_fault(
        "placed-runs-match", "succeeded", "a run that has ended in a lane", "ZADD P:lane:1:q:1:w 5 succeeded",
        also=(("terminal-is-final", "succeeded"),),
    ),
    a_fault("token-iff-leased", "running", "a lease without a token", "HDEL P:run:running leaseToken"),
    a_fault("token-iff-leased", "running", "a lease that nobody holds", "HDEL P:run:running leaseOwner"),
    a_fault("token-iff-leased", "running", "another run's token", "HSET P:run:running leaseToken runn.secret"),
    a_fault("token-iff-leased", "queued", "a token without a lease", "HSET P:run:queued leaseToken queued.secret"),
    a_fault("token-iff-leased", "queued", "a receipt without a lease", "HSET P:run:queued acked 1"),
    a_fault("terminal-is-final", "succeeded", "no time of its end", "HDEL P:run:succeeded finishedAt"),
    a_fault(
        "terminal-is-final", "failed", "a lease after the end", "ZADD P:leases 5 failed",
        also=(("placed-runs-match", "failed"), ("token-iff-leased", "failed")),
    ),
    a_fault(
        "terminal-is-final", "failed", "a token after the end", "HSET P:run:failed leaseToken failed.secret",
        also=(("token-iff-leased", "failed"),),
    ),
    a_fault(
        "terminal-is-final", "canceled", "a deadline after the end", "ZADD P:deadlines 5 canceled",
        also=(("deadlines", "canceled"),),
    ),
    a_fault("listing", "queued", "a run not listed by status", "ZREM P:runs:status:queued queued"),
    a_fault("listing", "failed", "a run not listed by workflow", "ZREM P:workflow-runs:failed:w failed"),
    a_fault("listing", "queued", "a run listed under two statuses", "ZADD P:runs:status:running 5 queued"),
    a_fault("listing", "queued", "a run listed under two workflows", "ZADD P:workflow-runs:queued:timed 5 queued"),
    a_fault("listing", "queued", "a run listed by another number", "ZADD P:runs:status:queued 999 queued"),
    a_fault("listing", "queued", "a run without a number", "HDEL P:run:queued seq"),
    a_fault("listing", "ghost", "an entry without a run", "ZADD P:runs:status:succeeded 999 ghost"),
    a_fault("lanes-set", "P:lane:1:q:1:w", "a lane that nobody will look into", "ZREM P:lanes 1:q:1:w"),
    a_fault("lanes-set", "P:lane:1:q:4:gone", "an empty lane", "ZADD P:lanes 99 1:q:4:gone"),
    a_fault("deadlines", "timed-queued", "a deadline that nobody will see pass", "ZREM P:deadlines timed-queued"),
    a_fault("deadlines", "timed-running", "a deadline at another time", "ZADD P:deadlines 5 timed-running"),
    a_fault("deadlines", "timed-queued", "put off without a delivery", "ZINCRBY P:deadlines 1000 timed-queued"),
    a_fault("deadlines", "failing", "a failure handler without end", "ZREM P:deadlines failing"),
    a_fault("deadlines", "queued", "a deadline of a run that has none", "ZADD P:deadlines 5 queued"),
    a_fault("deadlines", "ghost", "a deadline of nobody", "ZADD P:deadlines 5 ghost"),
    a_fault("retention", "succeeded", "a run that is never purged", "ZREM P:finished:succeeded succeeded"),
    a_fault("retention", "queued", "an open run to be purged", f"ZADD P:finished:failed {START_MS} queued"),
    a_fault("retention", "failed", "a run purged as another status", f"ZADD P:finished:canceled {START_MS} failed"),
    a_fault("retention", "canceled", "a run purged too soon", f"ZADD P:finished:canceled {START_MS - 1} canceled"),
    a_fault("retention", "ghost", "nobody to be purged", "ZADD P:finished:succeeded 5 ghost"),
    a_fault("steps", "running", "a step without a value", "HDEL P:run:running:steps o:a"),
    a_fault("steps", "running", "a value without a header", "HDEL P:run:running:steps s:a"),
    a_fault("steps", "succeeded", "a value of another size", "HSET P:run:succeeded:steps o:a 123456"),
    a_fault("steps", "succeeded", "a header that says nothing", "HSET P:run:succeeded:steps s:a gibberish"),
    a_fault(
        "steps", "succeeded", "a header of ten fields",
        "HSET P:run:succeeded:steps s:a succeeded|function|1|1|0|5|5|5||",
    ),
    a_fault(
        "steps", "succeeded", "a step of no kind", "HSET P:run:succeeded:steps s:a succeeded|dance|1|1|0|5|5|5||||",
    ),
    a_fault("steps", "running", "a field that is no step's", "HSET P:run:running:steps x:a 1"),
    a_fault("steps", "succeeded", "steps miscounted", "HSET P:run:succeeded stepsDone 2"),
    a_fault("steps", "succeeded", "all steps lost", "DEL P:run:succeeded:steps"),
    a_fault("steps", "running", "bytes miscounted", "HSET P:run:running stepsBytes 4"),
    a_fault(
        "idempotency", "P:idempotency:1:w:3:key", "a key that leads to a run without it",
        "SET P:idempotency:1:w:3:key queued KEEPTTL",
    ),
    a_fault(
        "idempotency", "P:idempotency:1:w:5:other", "a key that leads to a run with another",
        "SET P:idempotency:1:w:5:other keyed PX 60000",
    ),
    a_fault(
        "idempotency", "P:idempotency:5:timed:3:key", "a key that leads to a run of another workflow",
        "SET P:idempotency:5:timed:3:key keyed PX 60000",
    ),
    a_fault("idempotency", "keyed", "a key that is forgotten in its window", "DEL P:idempotency:1:w:3:key"),
    a_fault(
        "idempotency", "second", "two runs in the window of a key",
        f"HSET P:run:second idempotencyKey key keyExpiresAt {START_MS + HOUR_MS}",
    ),
    a_fault("numbers", "queued", "a time in floating point", "HSET P:run:queued createdAt 2e+12"),
    a_fault("numbers", "queued", "a count with a fraction", "HSET P:run:queued deliveries 1.0"),
    a_fault("numbers", "queued", "more than Lua can count", f"HSET P:run:queued createdAt {2**53 + 1}"),
    a_fault("numbers", "running", "a score with a fraction", "ZINCRBY P:leases 0.5 running"),
    a_fault(
        "numbers", "succeeded", "a step's time in floating point",
        "HSET P:run:succeeded:steps s:a succeeded|function|1|1|0|2e+12|2000000000000|5||||",
    ),
    a_fault("numbers", "P:run-seq", "a counter in floating point", "SET P:run-seq 1e+2"),
    a_fault("numbers", "P:lanes", "a change with a fraction", "ZINCRBY P:lanes 0.5 1:q:1:w"),
    a_fault("numbers", "P:workflow:w", "a workflow's time in floating point", "HSET P:workflow:w updatedAt 2e+12"),
    a_fault("numbers", "P:owner:7:owner-1:builds", "no time at all", "HSET P:owner:7:owner-1:builds build-1 once"),
    a_fault("owned-keys", "P:mystery", "a key of no kind", "SET P:mystery 1"),
    a_fault("owned-keys", "P:lane:1:q:9:w", "a name that does not add up", "ZADD P:lane:1:q:9:w 5 x"),
    a_fault("owned-keys", "P:runs:status:paused", "a status that there is not", "ZADD P:runs:status:paused 5 x"),
    a_fault("owned-keys", "P:sessions", "a key of another type", "SET P:sessions 1"),
    a_fault("owned-keys", "P:session:s", "a session for ever", "SET P:session:s {}"),
    a_fault("owned-keys", "P:idempotency:1:w:3:key", "an idempotency key for ever", "PERSIST P:idempotency:1:w:3:key"),
    a_fault("owned-keys", "P:event-key:4:paid:3:key", "an event's key for ever", "PERSIST P:event-key:4:paid:3:key"),
    a_fault("owned-keys", "P:run:queued", "a run that Redis removes", "PEXPIRE P:run:queued 600000"),
    a_fault("owned-keys", "P:run:gone:data", "payloads of nobody", "HSET P:run:gone:data inputJson 1"),
    a_fault("owned-keys", "P:run:gone:steps", "steps of nobody", "HSET P:run:gone:steps o:a 1"),
    a_fault("owned-keys", "P:run:half", "a record that no script reads", "HSET P:run:half queue q workflow w"),
    a_fault("owned-keys", "P:owner:6:nobody:builds", "builds of nobody", "HSET P:owner:6:nobody:builds b 1"),
    a_fault("registry", "w", "a workflow that is not listed", "SREM P:workflows w"),
    a_fault("registry", "w", "a workflow without its owner", "SREM P:owner:7:owner-1:workflows w"),
    a_fault("registry", "w", "a workflow that its event does not start", "SREM P:event:order:workflows w"),
    a_fault("registry", "w", "a workflow that another event starts", "SADD P:event:payment:workflows w"),
    a_fault("registry", "w", "a workflow of two owners", "SADD P:owner:1:x:workflows w"),
    a_fault(
        "registry", "w", "a workflow without a definition", "DEL P:workflow:w",
        also=(("schedules", "cron-1"),),
    ),
    a_fault("registry", "ghost", "an owner of nothing", "SADD P:owner:7:owner-1:workflows ghost"),
    a_fault("attempts", "succeeded", "more attempts than there may be", "HSET P:run:succeeded attempt 4"),
    a_fault("attempts", "failed", "started in no attempt", "HSET P:run:failed attempt 0"),
    a_fault("attempts", "running", "an attempt that does not follow failures", "HSET P:run:running failures 1"),
    a_fault("places", "queued", "another place in the lane", "ZADD P:lane:1:q:1:w 5 queued"),
    a_fault("places", "scheduled", "due at another time", "ZADD P:scheduled 5 scheduled"),
)  # fmt: skip
"""Places, numbers and times of 5 are those of nothing in the scene."""

FAULTS_BETWEEN: Final = (
    a_fault("failing", "queued", "a deadline for nothing", f"HSET P:run:queued failingDeadline {START_MS + HOUR_MS}",
        f"ZADD P:deadlines {START_MS + HOUR_MS} queued",
    ),
    a_fault("failing", "failed", "a failure handler after the end", "HSET P:run:failed phase failing"),
    a_fault("failing", "failing", "a failure handler without a deadline", "HDEL P:run:failing failingDeadline",
        "ZREM P:deadlines failing",
    ),
    a_fault("failing", "failing", "a verdict on a handler that has not run", "HSET P:run:failing failureHandler done"),
    a_fault("failing", "queued", "another phase", "HSET P:run:queued phase working"),
    a_fault("outbox", "P:outbox", "an entry that nobody has applied", "ZADD P:outbox 5 wake~queued"),
    a_fault("outbox", "P:outbox", "an entry that nobody understands", f"ZADD P:outbox {START_MS} greet~queued"),
    a_fault("outbox", "P:outbox", "children that nobody ends", "ZADD P:outbox 5 close~queued"),
    a_fault("outbox", "P:outbox", "an entry of nobody", f"ZADD P:outbox {START_MS} wake"),
    a_fault("events", "P:emitted:evt-done", "an event for ever", "PERSIST P:emitted:evt-done"),
    a_fault("events", "P:emitted:evt-done", "an event without a name", "HDEL P:emitted:evt-done name"),
    a_fault("events", "P:emitted:evt-done", "an event without a window", "HDEL P:emitted:evt-done expiresAt"),
    a_fault("events", "P:emitted:evt-open", "an event that goes before its time", "PEXPIRE P:emitted:evt-open 60000"),
    a_fault(
        "events", "P:emitted:evt-open", "subscribers that nobody starts", "ZREM P:fan-outs evt-open",
    ),
    a_fault("events", "P:emitted:evt-open", "subscribers that are forgotten", "HDEL P:emitted:evt-open part:1"),
    a_fault("events", "ghost", "subscribers of nothing", "ZADD P:fan-outs 5 ghost"),
    a_fault(
        "events", "P:event-key:5:other:3:key", "a key that leads to an event of another name",
        "SET P:event-key:5:other:3:key evt-done PX 60000",
    ),
    a_fault("schedules", "cron-1", "a schedule that never fires", "ZREM P:cron:next cron-1"),
    a_fault("schedules", "cron-1", "a schedule that fires with a problem", "HSET P:cron:problem cron-1 why"),
    a_fault("schedules", "cron-1", "a schedule that its workflow does not list", "HDEL P:workflow:w cronIdsJson"),
    a_fault("schedules", "cron-1", "a schedule of two workflows", 'HSET P:workflow:timed cronIdsJson ["cron-1"]'),
    a_fault("schedules", "cron-1", "a schedule without a definition", "HDEL P:cron:def cron-1"),
    a_fault("schedules", "ghost", "an occurrence of nothing", "ZADD P:cron:next 5 ghost"),
    a_fault("schedules", "ghost", "a problem of nothing", "HSET P:cron:problem ghost why"),
    a_fault("schedules", "ghost", "occurrences of nothing skipped", "HSET P:cron:skipped ghost 1"),
    a_fault("schedules", "ghost", "a workflow that lists nothing", 'HSET P:workflow:w cronIdsJson ["cron-1","ghost"]'),
    a_fault("numbers", "P:cron:next", "an occurrence with a fraction", "ZINCRBY P:cron:next 0.5 cron-1"),
    a_fault("numbers", "P:cron:skipped", "a count with a fraction", "HSET P:cron:skipped cron-1 1.5"),
    a_fault("numbers", "P:emitted:evt-done", "a window in floating point", "HSET P:emitted:evt-done expiresAt 2e+12"),
)  # fmt: skip
