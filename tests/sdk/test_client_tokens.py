"""Tokens that clients complete or fail, from outside the run that waits for them."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
import pytest

from redflow_sdk import Client, NotWaitingError, RedflowError, SerializationError, TokenNotFoundError
from redflow_sdk.proto.v1 import failure_pb2
from tests.sdk.messages import kind_of, value_of
from tests.sdk.scripted_runs import Refusal, ScriptedRuns


@dataclass
class Decision:
    approved: bool


async def test_a_token_is_completed_with_whatever_json_can_have(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        await client.complete_token("tok", Decision(approved=True))
        await client.complete_token("tok")
    first, second = (call.request for call in runs.named("CompleteToken"))
    assert first.token == "tok" and value_of(first.output) == {"approved": True}
    assert second.HasField("output") and value_of(second.output) is None, "nothing is a value, too"
    assert not first.HasField("failure")


async def test_a_token_is_failed_with_a_message_and_a_type(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        await client.fail_token("tok", "too dear")
        await client.fail_token("tok", "too dear", type="Rejected")
    failures: list[failure_pb2.Failure] = [call.request.failure for call in runs.named("CompleteToken")]
    assert [(it.type, it.message, kind_of(it)) for it in failures] == [
        ("TokenFailed", "too dear", "error"),
        ("Rejected", "too dear", "error"),
    ]


async def test_what_json_cannot_have_completes_nothing(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        with pytest.raises(SerializationError):
            await client.complete_token("tok", object())
    assert runs.calls == []


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (grpc.StatusCode.NOT_FOUND, "TOKEN_NOT_FOUND", TokenNotFoundError),
        (grpc.StatusCode.FAILED_PRECONDITION, "NOT_WAITING", NotWaitingError),
    ],
)
@pytest.mark.parametrize("ends_by", ["complete", "fail"])
async def test_a_token_that_cannot_be_completed_raises_why_at_once(
    ends_by: str, code: grpc.StatusCode, reason: str, expected: type[RedflowError], runs: ScriptedRuns
) -> None:
    runs.refuse_once("CompleteToken", Refusal(code, reason, "this will not do"))
    async with Client(runs.target) as client:
        with pytest.raises(expected, match="this will not do"):
            await (client.complete_token("tok") if ends_by == "complete" else client.fail_token("tok", "no"))
    assert len(runs.calls) == 1


async def test_a_completion_is_repeated_as_it_was_while_the_store_is_away(runs: ScriptedRuns) -> None:
    away = Refusal(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    runs.refuse_once("CompleteToken", away, away)
    async with Client(runs.target) as client:
        await client.complete_token("tok", 7)
    assert len({call.request.SerializeToString(deterministic=True) for call in runs.calls}) == 1
    assert len(runs.calls) == 3


@pytest.mark.parametrize("token", ["\ud800", "tok\N{SNOWMAN}", None, 7])
async def test_what_can_be_no_token_is_refused_here(runs: ScriptedRuns, token: str) -> None:
    async with Client(runs.target) as client:
        with pytest.raises(TokenNotFoundError):
            await client.complete_token(token, 1)
        with pytest.raises(TokenNotFoundError):
            await client.fail_token(token, "no")
    assert runs.calls == []
