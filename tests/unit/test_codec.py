"""What is stored reads back as it was."""

from __future__ import annotations

import itertools
import json

import pytest

from redflow_server.domain.failures import Failure, FailureKind, RetryHint
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import CronSchedule, RetryPolicy, Workflow, WorkflowDefinition
from redflow_server.domain.runs import NewRun, WaitingKind
from redflow_server.domain.session import SdkInfo
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.domain.waits import KIND_OF, ChildWait, EventWait, TimerWait, TokenWait, Wait, event_channel
from redflow_server.domain.workers import Worker
from redflow_server.rpc import convert
from redflow_server.store import codec, codec_registry
from redflow_server.store.keys import split_channel
from tests.builders import AWKWARD_BYTES, a_failed_step, a_failure, a_step, a_workflow

CLEF = "\N{MUSICAL SYMBOL G CLEF}"
AWKWARD_TEXT = f'"\\{CLEF}\n\x00|\x7f'

# ---- payloads ----


@pytest.mark.parametrize("data", AWKWARD_BYTES.values(), ids=AWKWARD_BYTES.keys())
@pytest.mark.parametrize(
    ("content_type", "metadata"),
    [
        ("", ()),
        ("application/x-thing", ()),
        ("", (("encryption", "aes"),)),
        ("text/plain; charset=utf-8", (("a", ""), ("", "b"), (AWKWARD_TEXT, AWKWARD_TEXT))),
    ],
)
def test_a_payload_keeps_its_bytes_and_what_goes_with_them(
    data: bytes, content_type: str, metadata: tuple[tuple[str, str], ...]
) -> None:
    payload = Payload(data, content_type, metadata)
    assert codec.decode_payload(data, codec.encode_meta(payload)) == payload


def test_plain_json_costs_no_meta() -> None:
    assert codec.encode_meta(Payload(b"{}")) == codec.encode_meta(None) == b""


@pytest.mark.parametrize("meta", [None, b""])
def test_a_payload_whose_bytes_are_missing_is_none_and_an_empty_one_is_not(meta: bytes | None) -> None:
    assert codec.decode_payload(None, meta) is None
    assert codec.decode_payload(b"", meta) == Payload(b"")


# ---- failures ----


@pytest.mark.parametrize(
    "failure",
    [
        Failure("ValueError", "no luck"),
        Failure("", ""),
        Failure(CLEF, AWKWARD_TEXT, traceback=AWKWARD_TEXT, language="python"),
        *(Failure("E", "m", kind) for kind in FailureKind),
        *(Failure("E", "m", hint=hint) for hint in RetryHint),
        *(Failure("E", "m", next_retry_delay_ms=delay_ms) for delay_ms in (0, 1, 10**13)),
        *(Failure("E", "m", details=Payload(data)) for data in AWKWARD_BYTES.values()),
        Failure("E", "m", details=Payload(b"\xff", "application/x-thing", (("a", CLEF), ("b", "")))),
        Failure("E", "m", cause=Failure("F", "n", FailureKind.TIMEOUT, cause=Failure("G", "o", details=Payload(b"1")))),
    ],
    ids=lambda failure: ascii(failure)[:60],
)
def test_a_failure_reads_back_with_its_causes_and_details(failure: Failure) -> None:
    assert codec.decode_failure(codec.encode_failure(failure)) == failure


@pytest.mark.parametrize("raw", [None, b""])
def test_without_a_failure_there_is_none(raw: bytes | None) -> None:
    assert codec.decode_failure(raw) is None


GOOD = {"type": "E", "message": "m", "kind": "error"}
UNREADABLE = {
    "no JSON": b"no JSON",
    "cut off": b'{"type":"E"',
    "invalid UTF-8": b'{"type":"\xff","message":"m","kind":"error"}',
    "an empty object": b"{}",
    "without a kind": json.dumps({"type": "E", "message": "m"}).encode(),
    "an unknown kind": json.dumps({**GOOD, "kind": "surprise"}).encode(),
    "an unknown hint": json.dumps({**GOOD, "hint": "surprise"}).encode(),
    "details that are no base64": json.dumps({**GOOD, "details": ["MQ", "", {}]}).encode(),
    "details that are a number": json.dumps({**GOOD, "details": 5}).encode(),
    "details that are too few": json.dumps({**GOOD, "details": ["MQ=="]}).encode(),
    "details without metadata": json.dumps({**GOOD, "details": ["MQ==", "", None]}).encode(),
    "a cause that is a text": json.dumps({**GOOD, "cause": "another"}).encode(),
    "a cause that cannot be read": json.dumps({**GOOD, "cause": {"type": "E"}}).encode(),
    "a list": b"[]",
    "a text": b'"ValueError: no luck"',
    "a number": b"1",
    "null": b"null",
    "a type that is a number": json.dumps({**GOOD, "type": 1}).encode(),
    "a message that is null": json.dumps({**GOOD, "message": None}).encode(),
    "a delay that is a text": json.dumps({**GOOD, "nextRetryDelayMs": "soon"}).encode(),
    "without an end": b'{"type":"E","message":"m","kind":"error","cause":' * 5000,
}
"""What a foreign hand may have left where a failure stands."""


@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_failure_that_cannot_be_read_says_so_and_can_be_shown(raw: bytes) -> None:
    failure = codec.decode_failure(raw)

    assert failure == codec.UNREADABLE
    assert convert.failure(failure) is not None


# ---- steps ----


@pytest.mark.parametrize("data", [None, *AWKWARD_BYTES.values()], ids=["absent", *AWKWARD_BYTES.keys()])
def test_an_absent_output_is_not_an_empty_one(data: bytes | None) -> None:
    *_, meta, value = codec.encode_step(a_step(output=data))
    assert isinstance(meta, bytes)
    assert isinstance(value, bytes)

    step = codec.decode_step(b"a", b"succeeded|function|1|1|0|10|20|0||||" + meta, value)

    assert step.output == (None if data is None else Payload(data))
    assert not step.is_left_out


def test_the_meta_of_an_output_keeps_the_character_that_separates_the_fields_of_a_header() -> None:
    output = Payload(b"|", "a|b", (("c|", "|d"),))
    header = b"succeeded|function|1|1|0|10|20|1||||" + codec.encode_meta(output)
    assert codec.decode_step(b"a", header, output.data).output == output


@pytest.mark.parametrize("kind", StepKind)
@pytest.mark.parametrize("status", [StepStatus.SUCCEEDED, StepStatus.FAILED])
def test_a_step_keeps_its_kind_its_status_its_numbers_and_its_times(kind: StepKind, status: StepStatus) -> None:
    step = codec.decode_step(f"{CLEF}|s:".encode(), f"{status}|{kind}|7|3|1|1000|2000|5|2|4||".encode(), b"")

    assert (step.name, step.kind, step.status) == (f"{CLEF}|s:", kind, status)
    assert (step.seq, step.attempt, step.is_final, step.tries, step.resolved_seq) == (7, 3, True, 2, 4)
    assert (step.started_at_ms, step.finished_at_ms, step.size_bytes) == (1000, 2000, 5)


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        (StepKind.CHILD, "run_1", {"child_run_id": "run_1"}),
        (StepKind.START, "run_1", {"child_run_id": "run_1"}),
        (StepKind.TOKEN, "tok_1", {"token": "tok_1"}),
        (StepKind.EVENT, "ev_1@1700", {"event_id": "ev_1", "event_at_ms": 1700}),
        (StepKind.EVENT, "", {}),
        (StepKind.TIMER, "", {}),
        (StepKind.FUNCTION, "", {}),
        (StepKind.EMIT, "", {}),
    ],
)
def test_a_step_says_by_its_kind_what_it_was_for(kind: StepKind, target: str, expected: dict[str, object]) -> None:
    step = codec.decode_step(b"a", f"succeeded|{kind}|1|1|1|10|20|0|||{target}|none".encode(), b"")
    found = {name: getattr(step, name) for name in ("child_run_id", "token", "event_id", "event_at_ms")}
    assert found == {"child_run_id": "", "token": "", "event_id": "", "event_at_ms": None} | expected


def test_a_step_that_failed_has_a_failure_and_no_output() -> None:
    failure = a_failure(cause=a_failure(message="deeper"))
    *_, meta, value = codec.encode_step(a_failed_step(failure=failure))
    assert isinstance(meta, bytes)
    assert isinstance(value, bytes)

    step = codec.decode_step(b"a", b"failed|function|1|1|0|10|20|9||||" + meta, value)

    assert (step.output, step.failure) == (None, failure)


def test_a_value_that_was_too_large_for_the_answer_is_left_out_and_an_absent_one_is_not() -> None:
    left_out = codec.decode_step(b"a", b"succeeded|function|1|1|0|10|20|99999||||", None)
    absent = codec.decode_step(b"a", b"succeeded|function|1|1|0|10|20|0||||none", None)

    assert (left_out.is_left_out, left_out.output, left_out.size_bytes) == (True, None, 99999)
    assert (absent.is_left_out, absent.output) == (False, None)


def test_the_steps_of_a_hash_come_in_order_of_first_use_and_by_name_where_that_is_the_same() -> None:
    flat = []
    for name, seq in (("c", 2), ("b", 1), ("o:x", 3), ("a", 1)):
        flat += [f"s:{name}".encode(), f"succeeded|function|{seq}|1|0|10|20|1||||".encode()]
        flat += [f"o:{name}".encode(), name.encode()]

    steps = codec.decode_steps(flat)

    assert [step.name for step in steps] == ["a", "b", "c", "o:x"]
    assert [step.output for step in steps] == [Payload(step.name.encode()) for step in steps]


# ---- waits and events ----

ODD = ("", "a|b", "3:x", "1:a:1:b", ":", CLEF, "a b", "0:")
"""What users may call events and their keys, and races."""


@pytest.mark.parametrize(
    ("kind", "target", "detail"),
    [
        (WaitingKind.TIMER, "", "sleeps"),
        (WaitingKind.CHILD, "run_2", "run run_2"),
        (WaitingKind.TOKEN, "tok_1", "somebody to complete its token"),
        (WaitingKind.EVENT, "4:paid", "event 'paid' without a key"),
        (WaitingKind.EVENT, "4:paid:0:", "event 'paid' with the key ''"),
        (WaitingKind.EVENT, "3:a|b:3:c:d", "event 'a|b' with the key 'c:d'"),
    ],
)
@pytest.mark.parametrize("group", ODD)
def test_an_open_wait_says_what_it_is_for_whatever_its_race_is_called(
    kind: WaitingKind, target: str, detail: str, group: str
) -> None:
    record = [b"status", b"waiting", b"workflow", b"w", b"queue", b"q"]
    entry = f"{kind}|1000|2000|{len(group.encode())}:{group}{target}".encode()
    [found] = codec.decode_run("run_1", record, (), [f"{CLEF}|a".encode(), entry]).waiting_for
    assert (found.kind, found.step_name, found.detail) == (kind, f"{CLEF}|a", detail)
    assert (found.since_ms, found.until_ms) == (1000, 2000)
    assert found.run_id == ("run_2" if kind is WaitingKind.CHILD else "")


def test_a_wait_without_an_end_has_none() -> None:
    record = [b"status", b"running", b"workflow", b"w", b"queue", b"q"]
    [found] = codec.decode_run("run_1", record, (), [b"a", b"token|1000||0:tok_1"]).waiting_for
    assert (found.since_ms, found.until_ms) == (1000, None)


@pytest.mark.parametrize("name", ODD[1:])
@pytest.mark.parametrize("key", [None, *ODD])
def test_the_channel_of_an_event_says_its_name_and_its_key(name: str, key: str | None) -> None:
    assert split_channel(event_channel(name, key)) == (name, key)


def test_no_two_events_meet_on_one_channel() -> None:
    pairs = list(itertools.product(ODD[1:], [None, *ODD]))
    assert len({event_channel(name, key) for name, key in pairs}) == len(pairs)


def test_every_wait_comes_as_as_many_arguments() -> None:
    start = NewRun("run_2", "w", Payload(b"1"), queue="q")
    targets = TimerWait(), TimerWait(5), EventWait("paid", "k"), TokenWait("tok_1"), ChildWait(start)
    for target in targets:
        encoded = codec.encode_wait(Wait("step", 3, target, "race", 7))
        assert len(encoded) == 16
        assert encoded[:5] == ("step", 3, KIND_OF[type(target)], "race", 7)
    at = [codec.encode_wait(Wait("step", 3, target))[4:7] for target in targets]
    assert at == [("", "", ""), ("", "5", ""), ("", "", "4:paid:1:k"), ("", "", "tok_1"), ("", "", "run_2")]


# ---- definitions ----


def stored(definition: WorkflowDefinition) -> list[bytes]:
    return [
        *(b"definitionJson", codec_registry.encode_definition(definition), b"owner", b"owner-1"),
        *(b"buildId", b"build-1", b"updatedAt", b"2000000000000"),
    ]


@pytest.mark.parametrize(
    "definition",
    [
        a_workflow(),
        a_workflow(name=AWKWARD_TEXT, queue=CLEF, digest="d", max_attempts=1_000_000),
        a_workflow(run_timeout_ms=1, start_timeout_ms=2, failure_handler_timeout_ms=3, has_failure_handler=True),
        a_workflow(retry_policy=RetryPolicy(0, 1.0, 0, 0.0)),
        a_workflow(retry_policy=RetryPolicy(250, 1.0000000000000002, 30_000, 0.1)),
        a_workflow(event_names=("b", "a", CLEF)),
        a_workflow(
            cron=(
                CronSchedule("nightly", "0 3 * * *", "Europe/Berlin", Payload(b"\xff", "x/y", (("k", "v"),))),
                CronSchedule("", "* * * * *", "", None),
            )
        ),
        a_workflow(input_json_schema=Payload(b'{"type":"object"}', "application/schema+json")),
    ],
    ids=lambda definition: ascii(definition)[:40],
)
def test_a_definition_reads_back_as_it_was_registered(definition: WorkflowDefinition) -> None:
    assert codec_registry.decode_workflow(stored(definition)) == Workflow(
        definition, "owner-1", "build-1", 2_000_000_000_000
    )


def test_a_retry_policy_for_the_scripts_keeps_every_digit() -> None:
    policy = RetryPolicy(250, 1.0000000000000002, 30_000, 0.1)
    initial, multiplier, maximum, jitter = codec_registry.encode_retry_policy(policy).split(" ")
    assert RetryPolicy(int(initial), float(multiplier), int(maximum), float(jitter)) == policy
    assert codec_registry.encode_retry_policy(None) == ""


# ---- workers and runs ----


def test_a_worker_reads_back_as_it_was_announced() -> None:
    worker = Worker(
        session_id="s",
        gateway_id="g",
        worker_name=CLEF,
        owner="o",
        instance_id="i",
        build_id="b",
        queues=("q", AWKWARD_TEXT),
        workflows=(),
        sdk=SdkInfo("sdk", "1.0", "python"),
        slot_limit=5,
        leases=2,
        is_draining=True,
        connected_at_ms=2_000_000_000_000,
    )
    assert codec_registry.decode_worker(codec_registry.encode_worker(worker)) == worker


def test_a_run_reads_back_with_what_is_missing_left_at_its_default() -> None:
    run = codec.decode_run("run_1", [b"workflow", b"w", b"queue", b"q", b"status", b"queued", b"attempt", b"0"])

    assert (run.run_id, run.workflow, run.queue, run.status, run.attempt) == ("run_1", "w", "q", RunStatus.QUEUED, 0)
    assert (run.max_attempts, run.input, run.output, run.failure, run.started_at_ms) == (1, None, None, None, None)


def test_text_that_is_no_utf8_does_not_keep_a_run_from_being_read() -> None:
    run = codec.decode_run("run_1", [b"workflow", b"\xff", b"queue", b"q", b"status", b"failed"])
    assert run.workflow == "\N{REPLACEMENT CHARACTER}"


def test_the_input_is_read_beside_the_record_or_from_it_where_the_original_engine_wrote_it() -> None:
    record = [b"status", b"queued", b"inputJson", b"1"]
    assert codec.decode_run("run_1", record).input == Payload(b"1")
    assert codec.decode_run("run_1", record, [b"inputJson", b"2"]).input == Payload(b"2")
