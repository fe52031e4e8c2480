"""The names of all keys and channels, and what each holds. `lua/lib/keys.lua` builds the same names; a test compares.

Every name begins with one prefix. With a hash tag in it, such as `{redflow}`, all of them are in one slot of a Redis
Cluster. Where two strings of users meet in one name, each is preceded by its length in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from redflow_server.domain.ids import counted
from redflow_server.domain.leases import Lane

DEFAULT_PREFIX: Final = "redflow:v1"


SOLO: Final = "solo:"
"""Before the name of a lane whose runs are delivered alone. Other names begin with a number."""


def lane_name(queue: str, workflow: str) -> str:
    """A lane's name, as a member of `lanes` and the end of its key."""
    return f"{counted(queue)}:{counted(workflow)}"


def lane_of(name: str) -> Lane:
    """The lane of a name."""
    raw = name.removeprefix(SOLO).encode()
    size, _, rest = raw.partition(b":")
    queue, rest = rest[: int(size)], rest[int(size) + 1 :]
    return Lane(queue.decode(), rest.partition(b":")[2].decode(), is_solo=name.startswith(SOLO))


def split_channel(channel: str) -> tuple[str, str | None]:
    """The event name of a channel, and its key, if it has one."""
    size, _, rest = channel.encode().partition(b":")
    name, key = rest[: int(size)], rest[int(size) :]
    return name.decode(), key[1:].partition(b":")[2].decode() if key else None


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names under one prefix."""

    prefix: str = DEFAULT_PREFIX

    @property
    def config(self) -> str:
        """Hash: engine, format version, number of shards."""
        return f"{self.prefix}:config"

    @property
    def run_seq(self) -> str:
        """Counter: numbers of runs and of places in lanes."""
        return f"{self.prefix}:run-seq"

    @property
    def lane_seq(self) -> str:
        """Counter: numbers of changes of a lane from empty to non-empty."""
        return f"{self.prefix}:lane-seq"

    @property
    def lanes(self) -> str:
        """Sorted set: the non-empty lanes by the number of that change."""
        return f"{self.prefix}:lanes"

    @property
    def scheduled(self) -> str:
        """Sorted set: scheduled runs by due time."""
        return f"{self.prefix}:scheduled"

    @property
    def leases(self) -> str:
        """Sorted set: running runs by the end of their lease."""
        return f"{self.prefix}:leases"

    @property
    def deadlines(self) -> str:
        """Sorted set: runs by the earlier of start and run deadline."""
        return f"{self.prefix}:deadlines"

    @property
    def timers(self) -> str:
        """Sorted set: open waits with a deadline, as `run_id step`, by deadline."""
        return f"{self.prefix}:timers"

    @property
    def reap_last(self) -> str:
        """String: when a gateway last looked for expired leases."""
        return f"{self.prefix}:reap:last"

    @property
    def reap_not_before(self) -> str:
        """String: when leases may be taken again after an outage."""
        return f"{self.prefix}:reap:not-before"

    @property
    def workflows(self) -> str:
        """Set: registered workflows."""
        return f"{self.prefix}:workflows"

    @property
    def sessions(self) -> str:
        """Sorted set: connected workers by when their description ends."""
        return f"{self.prefix}:sessions"

    @property
    def outbox(self) -> str:
        """Sorted set: what the ends of runs left to be done to other runs, by time."""
        return f"{self.prefix}:outbox"

    @property
    def fan_outs(self) -> str:
        """Sorted set: events that have subscribers left to start, by time."""
        return f"{self.prefix}:fan-outs"

    @property
    def event_seq(self) -> str:
        """Counter: numbers of events, and of waits for events, so that either knows which came first."""
        return f"{self.prefix}:event-seq"

    @property
    def event_memory(self) -> str:
        """Sorted set: the remembered events, as `number time bytes channel`, by number."""
        return f"{self.prefix}:event-memory"

    @property
    def event_bytes(self) -> str:
        """Counter: bytes of the remembered events."""
        return f"{self.prefix}:event-bytes"

    @property
    def events_dropped(self) -> str:
        """Counter: events that were forgotten early, because there were too many."""
        return f"{self.prefix}:events-dropped"

    @property
    def deliveries(self) -> str:
        """Sorted set: events that waits are left to hear of, as `number channel`, by the number of the next wait."""
        return f"{self.prefix}:deliveries"

    @property
    def cron_def(self) -> str:
        """Hash: cron schedules by id."""
        return f"{self.prefix}:cron:def"

    @property
    def cron_next(self) -> str:
        """Sorted set: cron schedules by their next occurrence."""
        return f"{self.prefix}:cron:next"

    @property
    def cron_last(self) -> str:
        """Sorted set: cron schedules by the last occurrence that started a run."""
        return f"{self.prefix}:cron:last"

    @property
    def cron_skipped(self) -> str:
        """Hash: how many occurrences of a cron schedule have passed without a run."""
        return f"{self.prefix}:cron:skipped"

    @property
    def cron_problem(self) -> str:
        """Hash: why a cron schedule cannot be evaluated."""
        return f"{self.prefix}:cron:problem"

    @property
    def wakeups(self) -> str:
        """Channel: messages for all gateways."""
        return f"{self.prefix}:wakeups"

    def run(self, run_id: str) -> str:
        """Hash: the record of a run, without its payloads. Compact while every field is at most 64 bytes."""
        return f"{self.prefix}:run:{run_id}"

    def data(self, run_id: str) -> str:
        """Hash: the exact bytes of input, output and failure, beside the record so that it stays compact."""
        return f"{self.prefix}:run:{run_id}:data"

    def steps(self, run_id: str) -> str:
        """Hash: `s:<name>` a step's header, `o:<name>` the exact bytes of its output or failure."""
        return f"{self.prefix}:run:{run_id}:steps"

    def waits(self, run_id: str) -> str:
        """Hash: the open waits of a run by step, as `kind|since|deadline|<bytes of group>:<group><target>`."""
        return f"{self.prefix}:run:{run_id}:waits"

    def awaiters(self, run_id: str) -> str:
        """Set: who waits for the end of a run, as `run_id step`."""
        return f"{self.prefix}:run:{run_id}:awaiters"

    def cursors(self, run_id: str) -> str:
        """Hash: the number of the last event that a run got on each channel."""
        return f"{self.prefix}:run:{run_id}:cursors"

    def children(self, run_id: str) -> str:
        """Set: runs that a run has started without waiting for them, and that are to be canceled when it ends."""
        return f"{self.prefix}:run:{run_id}:children"

    def lane(self, name: str) -> str:
        """Sorted set: queued runs of one workflow in one queue, by -priority * 2^42 + number."""
        return f"{self.prefix}:lane:{name}"

    def status(self, status: str) -> str:
        """Sorted set: the runs of a status, by number."""
        return f"{self.prefix}:runs:status:{status}"

    def workflow_status(self, status: str, workflow: str) -> str:
        """Sorted set: the runs of a workflow in a status, by number."""
        return f"{self.prefix}:workflow-runs:{status}:{workflow}"

    def finished(self, status: str) -> str:
        """Sorted set: the runs of a terminal status, by the time they ended or may first be purged."""
        return f"{self.prefix}:finished:{status}"

    def idempotency(self, workflow: str, key: str) -> str:
        """String: the run that a key names. Its window is in the run's record; the key's TTL only sweeps."""
        return f"{self.prefix}:idempotency:{counted(workflow)}:{counted(key)}"

    def workflow(self, name: str) -> str:
        """Hash: a registered workflow."""
        return f"{self.prefix}:workflow:{name}"

    def event_workflows(self, event: str) -> str:
        """Set: the workflows that an event starts."""
        return f"{self.prefix}:event:{event}:workflows"

    def emitted(self, event_id: str) -> str:
        """Hash: an emitted event, as long as repeats are answered; with its payload while runs are left to start."""
        return f"{self.prefix}:emitted:{event_id}"

    def event_key(self, event: str, key: str) -> str:
        """String: the event that an idempotency key names."""
        return f"{self.prefix}:event-key:{counted(event)}:{counted(key)}"

    def event_log(self, channel: str) -> str:
        """Stream: the remembered events of a channel, by number."""
        return f"{self.prefix}:event-log:{channel}"

    def event_waits(self, channel: str) -> str:
        """Sorted set: open waits for the events of a channel, as `run_id step`, by the number of their registration."""
        return f"{self.prefix}:event-waits:{channel}"

    def owner_workflows(self, owner: str) -> str:
        """Set: the workflows of an owner."""
        return f"{self.prefix}:owner:{counted(owner)}:workflows"

    def owner_builds(self, owner: str) -> str:
        """Hash: when each build of an owner was first seen."""
        return f"{self.prefix}:owner:{counted(owner)}:builds"

    def session(self, session_id: str) -> str:
        """String with TTL: description of a connected worker."""
        return f"{self.prefix}:session:{session_id}"

    def gateway(self, gateway_id: str) -> str:
        """Channel: messages for one gateway."""
        return f"{self.prefix}:gateway:{gateway_id}"
