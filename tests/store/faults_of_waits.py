"""What may be wrong with waits, events and what is kept for them in the scene of `scene.py`."""

from __future__ import annotations

from typing import Final

from tests.builders import START_MS
from tests.store.faults import a_fault
from tests.store.scene import HOUR_MS
from tests.wait_builders import SLEEP_MS

PAID: Final = f"3~{START_MS}~213~4:paid"
"""What the event memory has of `evt-done`, which is event number 3."""
LARGE: Final = "7~5:large"
"""The delivery of `evt-open` that is left."""
RESOLVED: Final = f"1|1|1|{START_MS}|{START_MS}"

FAULTS_OF_WAITS: Final = (
    a_fault("waits", "waiting", "a wait that its run does not know of", "SREM P:run:child:awaiters waiting~step"),
    a_fault("waits", "child", "an awaiter without a wait", "SADD P:run:child:awaiters queued~x"),
    a_fault("waits", "child", "an awaiter that is nobody", "SADD P:run:child:awaiters ghost~x"),
    a_fault("waits", "child", "an awaiter that waits for something else", "SADD P:run:child:awaiters patient~token"),
    a_fault("waits", "child", "a run that does not know it is awaited", "HDEL P:run:child awaited"),
    a_fault("waits", "queued", "a run that another one's wait is for", "SADD P:run:queued:awaiters waiting~step"),
    a_fault("waits", "waiting", "waits miscounted", "HSET P:run:waiting openWaits 2"),
    a_fault("waits", "patient", "a wait that is lost", "HDEL P:run:patient:waits token"),
    a_fault("waits", "patient", "a wait of no step", "HDEL P:run:patient:steps s:token o:token"),
    a_fault("waits", "patient", "a wait that cannot be read", "HSET P:run:patient:waits token token|5|tok"),
    a_fault(
        "waits", "patient", "a wait of another kind than its step",
        "HSET P:run:patient:steps s:token waiting|event|1|1|0|5||0||||",
    ),
    a_fault("waits", "patient", "a wait for another token", "HSET P:run:patient:waits token token|5||0:tok"),
    a_fault(
        "waits", "waiting", "a step that no longer waits",
        "HSET P:run:waiting:steps s:step failed|child|1|1|1|5|5|0||1||", "HSET P:run:waiting resolutions 1",
        also=(("steps", "waiting"),),
    ),
    a_fault(
        "waits", "waiting", "a wait for another run",
        "HSET P:run:waiting:steps s:step waiting|child|1|1|0|5||0|||queued|",
    ),
    a_fault("waits", "succeeded", "a run that has ended and is awaited", "SADD P:run:succeeded:awaiters waiting~x"),
    a_fault("waits", "ghost", "a run that is gone and is awaited", "SADD P:run:ghost:awaiters waiting~x"),
    a_fault("waits", "succeeded", "waits after the end", "HSET P:run:succeeded:waits step child|5||0:queued"),
    a_fault("waits", "gone", "waits of nobody", "HSET P:run:gone:waits step child|5||0:queued"),
    a_fault("timers", "parked", "a sleep that never ends", "ZREM P:timers parked~sleep"),
    a_fault("timers", "patient", "a wait for an event that never times out", "ZREM P:timers patient~event"),
    a_fault("timers", "patient", "a wait that times out too soon", "ZADD P:timers 5 patient~child"),
    a_fault("timers", "patient", "a time-out that a wait has not", "ZADD P:timers 5 patient~token"),
    a_fault("timers", "woken", "a time-out of a wait that is over", "ZADD P:timers 5 woken~token"),
    a_fault("timers", "ghost", "a timer of nobody", "ZADD P:timers 5 ghost~sleep"),
    a_fault("timers", "nonsense", "a timer of no step", "ZADD P:timers 5 nonsense"),
    a_fault("timers", "parked", "a sleep without an end", "HSET P:run:parked:waits sleep timer|5||0:"),
    a_fault("event-waits", "patient", "a wait on no channel", "ZREM P:event-waits:6:signed:1:k patient~event"),
    a_fault("event-waits", "patient", "a wait on another channel, too", "ZADD P:event-waits:4:paid 5 patient~event"),
    a_fault("event-waits", "parked", "a sleep on a channel", "ZADD P:event-waits:4:paid 5 parked~sleep"),
    a_fault("event-waits", "woken", "a wait that is over on a channel", "ZADD P:event-waits:4:paid 5 woken~event"),
    a_fault("event-waits", "ghost", "nobody on a channel", "ZADD P:event-waits:4:paid 5 ghost~event"),
    a_fault("event-waits", "listener-3", "an event that a wait never hears of", f"ZREM P:deliveries {LARGE}"),
    a_fault("event-waits", "listener-3", "an event that has passed a wait by", f"ZADD P:deliveries 99 {LARGE}"),
    a_fault(
        "event-waits", "listener-3", "a wait that began after its event",
        "ZADD P:event-waits:5:large 99 listener-3~event",
    ),
    a_fault(
        "resolutions", "woken", "an outcome without a number",
        f"HSET P:run:woken:steps s:event succeeded|event|{RESOLVED}|7||||",
    ),
    a_fault(
        "resolutions", "woken", "two outcomes of one number",
        f"HSET P:run:woken:steps s:event succeeded|event|{RESOLVED}|7||1||",
    ),
    a_fault("resolutions", "woken", "a number that comes again", "HSET P:run:woken resolutions 1"),
    a_fault("parked", "queued", "a parked run without a lease", "HSET P:run:queued parked 1"),
    a_fault("parked", "patient", "a parked run that is suspended", "HSET P:run:patient parked 1"),
    a_fault("parked", "succeeded", "a parked run that has ended", "HSET P:run:succeeded parked 1"),
    a_fault("parked", "running", "a run that is parked for nothing", "HSET P:run:running parked 1"),
    a_fault("parked", "failing", "a failure handler that is parked", "HSET P:run:failing parked 1 woken 1"),
    a_fault("parked", "running", "a run that was woken at work", "HSET P:run:running woken 1"),
    a_fault("kept-beside", "woken", "cursors that nobody removes", "HDEL P:run:woken cursors"),
    a_fault("kept-beside", "woken", "cursors that are lost", "DEL P:run:woken:cursors"),
    a_fault("kept-beside", "succeeded", "cursors after the end", "HSET P:run:succeeded:cursors 4:paid 3"),
    a_fault("kept-beside", "succeeded", "said to have cursors after the end", "HSET P:run:succeeded cursors 1"),
    a_fault("kept-beside", "gone", "cursors of nobody", "HSET P:run:gone:cursors 4:paid 3"),
    a_fault("kept-beside", "guardian", "children that nobody ends", "HDEL P:run:guardian children"),
    a_fault("kept-beside", "guardian", "children that are lost", "DEL P:run:guardian:children"),
    a_fault("kept-beside", "succeeded", "children after the end", "SADD P:run:succeeded:children queued"),
    a_fault("kept-beside", "gone", "children of nobody", "SADD P:run:gone:children queued"),
)  # fmt: skip
"""Times and scores of 5 are those of nothing in the scene."""

FAULTS_OF_EVENTS: Final = (
    a_fault(
        "event-memory", "P:event-log:4:paid", "an event that nobody forgets", f"ZREM P:event-memory {PAID}",
        "DECRBY P:event-bytes 213",
    ),
    a_fault("event-memory", "P:event-memory", "an event that is lost", "DEL P:event-log:4:paid"),
    a_fault("event-memory", "P:event-memory", "an event by another number", f"ZADD P:event-memory 4 {PAID}"),
    a_fault("event-memory", "P:event-memory", "an event that cannot be read", "ZADD P:event-memory 5 5~gibberish"),
    a_fault(
        "event-memory", "P:event-memory", "an event of another size", f"ZREM P:event-memory {PAID}",
        f"ZADD P:event-memory 3 {PAID.replace('213', '214')}", "INCRBY P:event-bytes 1",
        also=(("event-memory", "P:event-log:4:paid"),),
    ),
    a_fault(
        "event-memory", "P:event-log:4:paid", "a part of an event", "XADD P:event-log:4:paid 9-1 payload 1",
    ),
    a_fault(
        "event-memory", "P:event-log:5:empty", "an empty log", "XADD P:event-log:5:empty 9-0 payload 1",
        "XDEL P:event-log:5:empty 9-0",
    ),
    a_fault("event-memory", "P:event-bytes", "bytes miscounted", "INCRBY P:event-bytes 1"),
    a_fault("event-memory", "P:event-bytes", "bytes not counted", "DEL P:event-bytes"),
    a_fault("deliveries", "P:deliveries", "an event to be heard of that is forgotten", "ZADD P:deliveries 1 9~4:paid"),
    a_fault("deliveries", "P:deliveries", "nothing to be heard of", "ZADD P:deliveries 1 gibberish"),
    a_fault(
        "deliveries", "P:deliveries", "an event that is still to be heard of after years",
        "XADD P:event-log:3:old 1-0 at 5 bytes 9", "ZADD P:event-memory 1 1~5~9~3:old", "INCRBY P:event-bytes 9",
        "ZADD P:deliveries 1 1~3:old",
    ),
    a_fault("numbers", "queued", "an event's number in floating point", "HSET P:run:queued eventSeq 1e+2"),
    a_fault("numbers", "woken", "a count of outcomes with a fraction", "HSET P:run:woken resolutions 2.0"),
    a_fault("numbers", "woken", "a cursor with a fraction", "HSET P:run:woken:cursors 4:paid 3.0"),
    a_fault(
        "numbers", "woken", "an outcome's number with a fraction",
        f"HSET P:run:woken:steps s:event succeeded|event|{RESOLVED}|7||2.0||",
    ),
    a_fault(
        "numbers", "running", "tries with a fraction",
        f"HSET P:run:running:steps s:a succeeded|function|{RESOLVED}|5|1.5|||",
    ),
    a_fault(
        "numbers", "patient", "a deadline in floating point",
        f"HSET P:run:patient:waits sleep timer|{START_MS}|2.00000006e+12|0:",
    ),
    a_fault(
        "numbers", "parked", "a time in floating point",
        f"HSET P:run:parked:waits sleep timer|2e+12|{START_MS + SLEEP_MS}|0:",
    ),
    a_fault(
        "numbers", "P:event-waits:6:signed:1:k", "a place with a fraction",
        "ZINCRBY P:event-waits:6:signed:1:k 0.5 patient~event",
    ),
    a_fault("numbers", "P:deliveries", "a next wait with a fraction", f"ZINCRBY P:deliveries -0.5 {LARGE}"),
    a_fault("numbers", "P:event-seq", "a counter of events in floating point", "SET P:event-seq 1e+2"),
    a_fault("owned-keys", "P:event-log:4:paid", "a log that Redis removes", "PEXPIRE P:event-log:4:paid 600000"),
    a_fault("owned-keys", "P:event-log:9:x", "a channel that does not add up", "XADD P:event-log:9:x 9-0 payload 1"),
    a_fault("owned-keys", "P:event-log:1:x:1:y:1:z", "three parts", "XADD P:event-log:1:x:1:y:1:z 9-0 payload 1"),
)  # fmt: skip

LEFT_TO_THE_OUTBOX: Final = {
    "waits of a run that has ended": (
        f"HSET P:run:succeeded:waits event event|5|{START_MS + HOUR_MS}|0:4:paid",
        "HSET P:run:succeeded:steps s:event waiting|event|1|1|0|5||0|||| o:event ",
        f"ZADD P:timers {START_MS + HOUR_MS} succeeded~event",
        "ZADD P:event-waits:4:paid 1 succeeded~event",
        f"ZADD P:outbox {START_MS} withdraw~succeeded",
    ),
    "children of a run that has ended": (
        "SADD P:run:succeeded:children ward",
        f"ZADD P:outbox {START_MS} close~succeeded",
    ),
    "a run that waits for one that has ended": (
        "SADD P:run:succeeded:awaiters waiting~step",
        f"ZADD P:outbox {START_MS} wake~succeeded",
        "HSET P:run:waiting:waits step child|5||0:succeeded",
        "HSET P:run:waiting:steps s:step waiting|child|1|1|0|5||0|||succeeded| o:step ",
        "DEL P:run:child:awaiters",
    ),
}
"""What the ends of runs may leave for a moment, and is no fault."""
