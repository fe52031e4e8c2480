"""What a worker may call itself and ask for on opening, and how the gateway refuses the rest."""

from __future__ import annotations

import pytest

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.gateway import Gateway
from tests.rpc.calls import Calls
from tests.rpc.conftest import Dial, OpenWorker
from tests.rpc.scripted_worker import a_definition, an_open, refusal_of

TEXTS = ("owner", "worker_name", "instance_id", "build_id")
REFUSED_NAMES = {
    "empty": "",
    "257 bytes": "x" * 257,
    "86 characters of 3 bytes": "€" * 86,
    "a NUL": "a\x00b",
    "a line break": "a\nb",
    "an escape sequence": "\x1b[31mred",
    "a C1 control": "a\x9bb",
}
ODD_NAMES = (
    "x" * 256,
    "€" * 85,
    '"><img src=x onerror=alert(1)>',
    "</script>",
    "javascript:alert(1)",
    "a:b:c",
    "{tag}",
    "a b",
    " ",
    "*?[a-z]\\",
    "💥 ümlaut \u202e right-to-left",
    "%s %d ${HOME} `id`",
    "-1",
)


async def test_names_that_are_empty_too_long_or_have_control_characters_are_refused_by_field(
    gateway: Gateway, dial: Dial
) -> None:
    wrong = []
    for field in (*TEXTS, "queues"):
        for kind, name in REFUSED_NAMES.items():
            value = [name] if field == "queues" else name

            error = await refusal_of(dial(), an_open("w", **{field: value}))

            if (error.reason, error.permanent) != ("INVALID_INPUT", True) or f"open.{field}" not in error.message:
                wrong.append((field, kind, error))
    assert wrong == []


async def test_odd_names_are_data_and_come_back_as_they_were_sent(calls: Calls, open_worker: OpenWorker) -> None:
    sent = {}
    for name in ODD_NAMES:
        worker = await open_worker(
            a_definition(name, name, definition_digest=name),
            **dict.fromkeys(TEXTS, name),
            queues=[name],
            sdk=pb.SdkInfo(name=name, version=name, language=name),
        )
        assert worker.opened is not None
        sent[worker.opened.session_id] = name

    listed = {worker.session_id: worker for worker in await calls.worker_list()}

    assert listed.keys() == sent.keys()
    for session_id, name in sent.items():
        worker = listed[session_id]
        assert {getattr(worker, field) for field in TEXTS} == {name}
        assert [worker.sdk.name, worker.sdk.version, worker.sdk.language] == [name] * 3
        assert (list(worker.queues), list(worker.workflows)) == ([name], [name])


async def test_what_an_sdk_says_of_itself_is_not_kept_without_bound(calls: Calls, dial: Dial) -> None:
    worker = dial()

    await worker.say(
        open=an_open("w", sdk=pb.SdkInfo(name="x" * 100_000, version="y" * 100_000, language="z" * 100_000))
    )

    await worker.until(lambda: worker.opened or worker.error, saying="no answer")
    for listed in await calls.worker_list():
        assert max(map(len, (listed.sdk.name, listed.sdk.version, listed.sdk.language))) <= 256


@pytest.mark.parametrize("slot_limit", [-1, -(2**31), 10_001, 2**31 - 1])
async def test_a_slot_limit_that_no_worker_has_is_refused(gateway: Gateway, dial: Dial, slot_limit: int) -> None:
    error = await refusal_of(dial(), an_open("w", slot_limit=slot_limit))

    assert (error.reason, error.permanent) == ("INVALID_INPUT", True)
    assert "open.slot_limit" in error.message
    assert str(slot_limit) in error.message


@pytest.mark.parametrize("slot_limit", [0, 10_000])
async def test_the_bounds_of_the_slot_limit_are_accepted(
    calls: Calls, open_worker: OpenWorker, slot_limit: int
) -> None:
    await open_worker("w", slot_limit=slot_limit)

    assert [worker.slot_limit for worker in await calls.worker_list()] == [slot_limit]


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
async def test_sessions_are_counted_from_one(gateway: Gateway, dial: Dial, number: int) -> None:
    error = await refusal_of(dial(), an_open("w", session_number=number))

    assert error.reason == "INVALID_INPUT"
    assert "open.session_number" in error.message


async def test_too_many_queues_workflows_or_lanes_are_refused(gateway: Gateway, dial: Dial) -> None:
    names = [f"n{number}" for number in range(1001)]

    queues = await refusal_of(dial(), an_open("w", queues=names))
    workflows = await refusal_of(dial(), an_open(*names))
    lanes = await refusal_of(dial(), an_open(*names[:500], queues=names[:500]))

    assert {queues.reason, workflows.reason, lanes.reason} == {"INVALID_INPUT"}
    assert "open.queues" in queues.message
    assert "open.workflows" in workflows.message
    assert "lanes" in lanes.message


async def test_a_thousand_queues_or_workflows_are_served(calls: Calls, open_worker: OpenWorker) -> None:
    names = [f"n{number}" for number in range(1000)]
    in_queues = await open_worker("w", queues=names)
    of_workflows = await open_worker(*names, owner="owner-2", queues=["q"])

    await calls.start("w", "n999")
    await calls.start("n999", "q")

    assert (await in_queues.assignment()).queue == "n999"
    assert (await of_workflows.assignment()).workflow == "n999"


async def test_a_worker_without_workflows_opens_and_gets_nothing(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker(queues=["q"])

    await calls.start("w", "q")

    await worker.quiet()
    assert worker.assignments == []
    assert [listed.worker_name for listed in await calls.worker_list()]
