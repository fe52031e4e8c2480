"""What a worker says of waits, of runs that it starts, and of races, read into values."""

from __future__ import annotations

from typing import Final

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.domain.ids import counted
from redflow_server.domain.leases import BeginWaits, ClosePolicy, RecordStep, Resolution, StartStep, Suspend
from redflow_server.domain.names import MAX_WAITS, Limits
from redflow_server.domain.payloads import EMPTY_OBJECT, Payload
from redflow_server.domain.runs import NewRun, Step
from redflow_server.domain.session import GatewayMessage, HeldLease, Item, ItemStatus, LeaseState, RefusedItem
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.domain.tokens import TokenStep, step_of
from redflow_server.domain.waits import ChildWait, EventWait, TimerWait, TokenWait, Wait
from redflow_server.rpc.session_reader import SessionReader
from redflow_server.rpc.session_writer import SessionWriter
from tests.rpc import items
from tests.rpc.items import Fields

LATER: Final = 999
TOKEN: Final = "run_1.0123456789abcde"
MAX_BYTES: Final = 1000
READER: Final = SessionReader(Limits(max_payload_bytes=MAX_BYTES))
WRITER: Final = SessionWriter(30_000, 5000, pb.SessionOpened(gateway_id="g"))
MINUTE: Final = Duration(seconds=60)
NAME_TOO_LONG: Final = "x" * 257


def read(request: pb.SessionRequest) -> Item | RefusedItem:
    [item] = READER.message(request).items
    return item


def suspended(*waits: pb.Wait, **fields: Fields) -> Item | RefusedItem:
    suspension = pb.Suspension(request_id=1, lease_token=TOKEN, steps_recorded=3, waits=waits, **fields)
    return read(pb.SessionRequest(suspensions=[suspension]))


def a_wait(step_name: str = "step", **fields: Fields) -> pb.Wait:
    fields = fields or {"timer": pb.TimerWait(delay=MINUTE)}
    return pb.Wait(step_name=step_name, **{"step_seq": 2, **fields})


def wait_of(**fields: Fields) -> Wait:
    """The one wait of a suspension."""
    item = suspended(a_wait(**fields))
    assert isinstance(item, Item), item
    assert isinstance(item.effect, Suspend)
    [wait] = item.effect.waits
    return wait


def refusal_of(*waits: pb.Wait) -> RefusedItem:
    item = suspended(*waits)
    assert isinstance(item, RefusedItem), item
    return item


def started(step_name: str = "begin", **fields: Fields) -> Item | RefusedItem:
    """A step that starts a run."""
    start = pb.ChildStart(**{"workflow": "w", **fields})
    command = pb.StepCommand(request_id=1, lease_token=TOKEN, step_name=step_name, step_seq=2, start_child=start)
    return read(pb.SessionRequest(step_commands=[command]))


def start_of(item: Item | RefusedItem) -> NewRun:
    assert isinstance(item, Item), item
    assert isinstance(item.effect, StartStep)
    return item.effect.start


# ---- each kind ----


def test_a_suspension_keeps_its_waits_in_their_order_and_says_whether_it_parks() -> None:
    for park in (False, True):
        item = suspended(a_wait("b"), a_wait("a"), park=park)
        assert isinstance(item, Item)
        waits = tuple(Wait(name, 2, TimerWait(), timeout_ms=60_000) for name in "ba")
        assert item.effect == Suspend("run_1", TOKEN, 3, waits, park)


def test_waits_of_a_run_that_goes_on_are_read_alike() -> None:
    command = pb.StepCommand(request_id=1, lease_token=TOKEN, wait=pb.WaitCommand(waits=[a_wait("a", group="g")]))
    item = read(pb.SessionRequest(step_commands=[command]))
    assert isinstance(item, RefusedItem), "it waits for nothing"
    command.wait.waits[0].timer.delay.CopyFrom(MINUTE)
    item = read(pb.SessionRequest(step_commands=[command]))
    assert isinstance(item, Item)
    assert item.effect == BeginWaits("run_1", TOKEN, 0, (Wait("a", 2, TimerWait(), "g", 60_000),))


def test_a_sleep_is_for_a_while_and_not_shorter_or_until_a_time() -> None:
    assert wait_of(timer={"delay": Duration(nanos=1_500_000)}) == Wait("step", 2, TimerWait(), timeout_ms=2)
    assert wait_of(timer={"delay": Duration()}) == Wait("step", 2, TimerWait(), timeout_ms=0)
    until = Timestamp(seconds=2_000_000_000, nanos=7_000_000)
    assert wait_of(timer={"until_time": until}) == Wait("step", 2, TimerWait(2_000_000_000_007))


def test_an_event_without_a_key_is_not_one_with_an_empty_key() -> None:
    assert wait_of(event={"event_name": "paid"}).target == EventWait("paid", None)
    assert wait_of(event={"event_name": "paid", "key": ""}).target == EventWait("paid", "")
    assert wait_of(event={"event_name": "paid", "key": "k"}).target == EventWait("paid", "k")


def test_the_token_of_a_wait_is_made_for_its_step() -> None:
    target = wait_of(token={}).target
    assert isinstance(target, TokenWait)
    assert step_of(target.token) == TokenStep("run_1", "step")


def test_a_run_to_wait_for_is_named_or_started() -> None:
    by_id = wait_of(child={"run_id": "run_2"}).target
    assert by_id == ChildWait(NewRun("run_2", "", EMPTY_OBJECT))
    target = wait_of(child={"start": pb.ChildStart(workflow="w")}).target
    assert isinstance(target, ChildWait)
    assert target.start == start_of(started("step")), "the same step starts the same run"


@pytest.mark.parametrize(
    "wait",
    [
        {"event": pb.EventWait(event_name="paid", timeout=MINUTE)},
        {"child": pb.ChildWait(run_id="run_2", timeout=MINUTE)},
        {"token": pb.TokenWait(timeout=MINUTE)},
    ],
    ids=["event", "child", "token"],
)
def test_a_wait_may_have_an_end_and_a_race(wait: Fields) -> None:
    found = wait_of(group="a race", **wait)
    assert (found.timeout_ms, found.group) == (60_000, "a race")
    for message in wait.values():
        message.ClearField("timeout")
    assert wait_of(**wait).timeout_ms is None


# ---- refused ----


@pytest.mark.parametrize(
    "wait",
    [
        {"step_name": "", "timer": pb.TimerWait(delay=MINUTE)},
        {"step_name": NAME_TOO_LONG, "timer": pb.TimerWait(delay=MINUTE)},
        {"step_seq": -1, "timer": pb.TimerWait(delay=MINUTE)},
        {"group": NAME_TOO_LONG, "timer": pb.TimerWait(delay=MINUTE)},
        {"group": "a\n", "timer": pb.TimerWait(delay=MINUTE)},
        {"group": "nothing to wait for"},
        {"timer": pb.TimerWait()},
        {"timer": pb.TimerWait(delay=MINUTE, until_time=Timestamp(seconds=1))},
        {"timer": pb.TimerWait(delay=Duration(seconds=-1))},
        {"timer": pb.TimerWait(until_time=Timestamp(seconds=10**12))},
        {"event": pb.EventWait()},
        {"event": pb.EventWait(event_name=NAME_TOO_LONG)},
        {"event": pb.EventWait(event_name="paid", key=NAME_TOO_LONG)},
        {"event": pb.EventWait(event_name="paid", key="a\x00")},
        {"event": pb.EventWait(event_name="paid", timeout=Duration(seconds=-1))},
        {"child": pb.ChildWait()},
        {"child": pb.ChildWait(run_id="")},
        {"child": pb.ChildWait(run_id="run:2")},
        {"child": pb.ChildWait(run_id="run_2", timeout=Duration(seconds=-1))},
        {"child": pb.ChildWait(start=pb.ChildStart(workflow=""))},
        {"child": pb.ChildWait(start=pb.ChildStart(workflow="w", max_attempts=-1))},
        {"token": pb.TokenWait(timeout=Duration(seconds=-1))},
    ],
    ids=lambda wait: str(wait).replace("\n", " ")[:60],
)
def test_a_wait_that_makes_no_sense_refuses_all_of_them(wait: Fields) -> None:
    refused = refusal_of(a_wait("good"), a_wait(**wait))
    assert (refused.status, refused.reason) == (ItemStatus.INVALID, "INVALID_INPUT")


def test_no_waits_too_many_and_two_for_one_step_are_refused() -> None:
    assert isinstance(suspended(*(a_wait(f"step {number}") for number in range(MAX_WAITS))), Item)
    for waits in ((), [a_wait(f"step {number}") for number in range(MAX_WAITS + 1)], (a_wait(), a_wait())):
        assert refusal_of(*waits).status is ItemStatus.INVALID


def test_an_input_over_the_limit_is_answered_too_large() -> None:
    large = items.a_payload(b"x" * (MAX_BYTES + 1))
    child = a_wait(child=pb.ChildWait(start=pb.ChildStart(workflow="w", input=large)))
    assert refusal_of(child).status is ItemStatus.TOO_LARGE
    item = started(input=large)
    assert isinstance(item, RefusedItem)
    assert item.status is ItemStatus.TOO_LARGE


# ---- runs that a step starts ----


def test_a_run_that_a_step_starts_has_an_id_of_that_step_and_a_key_for_its_workflow() -> None:
    first, again, other = (start_of(started(name)) for name in ("a", "a", "b"))
    assert first == again
    assert first.run_id != other.run_id
    assert first.idempotency_key == f"stepwf:{counted('run_1')}:{counted('a')}:{counted('w')}"
    assert (first.input, first.queue, first.max_attempts, first.is_typed) == (EMPTY_OBJECT, None, None, True)


def test_it_has_what_the_step_says() -> None:
    fields: dict[str, Fields] = {
        "queue": "q",
        "priority": 7,
        "max_attempts": 3,
        "idempotency_key": "k",
        "idempotency_ttl": MINUTE,
    }
    run = start_of(started(input=items.a_payload(b"7"), **fields))
    assert (run.workflow, run.queue, run.priority, run.max_attempts) == ("w", "q", 7, 3)
    assert (run.input, run.idempotency_key, run.idempotency_ttl_ms) == (Payload(b"7"), "k", 60_000)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (pb.PARENT_CLOSE_POLICY_UNSPECIFIED, ClosePolicy.ABANDON),
        (pb.PARENT_CLOSE_POLICY_ABANDON, ClosePolicy.ABANDON),
        (pb.PARENT_CLOSE_POLICY_CANCEL, ClosePolicy.CANCEL),
        (LATER, ClosePolicy.ABANDON),
    ],
)
def test_what_becomes_of_it_is_to_be_left_alone_unless_it_is_said(policy: int, expected: ClosePolicy) -> None:
    item = started(parent_close_policy=policy)
    assert isinstance(item, Item)
    assert isinstance(item.effect, StartStep)
    assert (item.effect.close_policy, item.effect.name, item.effect.seq) == (expected, "begin", 2)


# ---- races of functions, tries, heartbeats ----


def test_a_step_names_its_rivals_and_how_often_it_was_tried() -> None:
    request = pb.SessionRequest(step_reports=[items.a_step(TOKEN, rivals=["a", "b"], tries=3)])
    item = read(request)
    assert isinstance(item, Item)
    assert isinstance(item.effect, RecordStep)
    assert (item.effect.rivals, item.effect.step.tries) == (("a", "b"), 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"rivals": [""]},
        {"rivals": [NAME_TOO_LONG]},
        {"rivals": [f"step {number}" for number in range(MAX_WAITS + 1)]},
        {"tries": -1},
        {"step_kind": run_pb2.STEP_KIND_TIMER},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_a_step_that_claims_what_cannot_be_is_refused(fields: Fields) -> None:
    item = read(pb.SessionRequest(step_reports=[items.a_step(TOKEN, **fields)]))
    assert isinstance(item, RefusedItem)
    assert item.status is ItemStatus.INVALID


def test_a_heartbeat_says_which_waits_are_taken_to_be_open() -> None:
    lease = pb.HeldLease(lease_token=TOKEN, state=pb.LEASE_STATE_PARKED, open_waits=["a", "b"])
    message = READER.message(pb.SessionRequest(heartbeat=pb.Heartbeat(leases=[lease])))
    assert message.heartbeat is not None
    assert message.heartbeat.leases == (HeldLease(TOKEN, LeaseState.PARKED, ("a", "b")),)


# ---- what the gateway says ----


def test_the_outcome_of_a_wait_says_all_that_a_replay_needs() -> None:
    step = Step(
        *("step", 2, StepKind.EVENT, StepStatus.SUCCEEDED, 1),
        is_final=True,
        output=Payload(b"7"),
        event_id="ev_1",
        event_at_ms=2_000_000_000_007,
        resolved_seq=4,
        tries=2,
    )
    token = Step("ask", 3, StepKind.TOKEN, StepStatus.WAITING, 1, token="tok_1")
    resolutions = Resolution(TOKEN, "step", step), Resolution(TOKEN, "ask", token)
    event, open_ = WRITER.message(GatewayMessage(resolutions=resolutions)).wait_resolutions
    assert (event.lease_token, event.step.step_name, event.step.output.data) == (TOKEN, "step", b"7")
    assert (event.step.event_id, event.step.event_time.ToMilliseconds()) == ("ev_1", 2_000_000_000_007)
    assert (event.step.resolved_seq, event.step.tries, event.step.final) == (4, 2, True)
    assert (open_.step.token, open_.step.status) == ("tok_1", run_pb2.STEP_STATUS_WAITING)


def test_a_wait_that_the_store_has_lost_is_told_by_its_name_alone() -> None:
    [told] = WRITER.message(GatewayMessage(resolutions=(Resolution(TOKEN, "step", None),))).wait_resolutions
    assert (told.lease_token, told.step) == (TOKEN, pb.StepSnapshot(step_name="step"))
