"""`redflow token`: ending the wait of a step from outside, once."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from redflow_sdk import Client, Context, RunFailedError, TokenFailedError, workflow
from redflow_server.cli.exit_codes import ExitCode
from tests.cli.conftest import Run
from tests.conftest import StartWorker
from tests.eventually import eventually

UNKNOWN = "tok_run_qabb36vb7pudj2jndan3iv.YXBwcm92ZQ.kq3vX0mZr8TtQ2b"
OVER = "the wait for the token is over: it was completed with something else, has timed out, or its run has ended"


@workflow(name="approve", queue="tokens")
async def approve(ctx: Context, name: str) -> object:
    token = await ctx.step.token("approval", timeout=60)
    await ctx.step.run("tell", lambda: str(token))
    try:
        return await token.result()
    except TokenFailedError as error:
        if name == "caught":
            return [error.failure.type, error.failure.message]
        raise


@pytest_asyncio.fixture
async def worker(start_worker: StartWorker) -> None:
    await start_worker(approve)


async def token_of(client: Client, run_id: str) -> str:
    """The token that a run has given out."""

    async def told() -> str:
        steps = await client.get_run_steps(run_id)
        return next((step.output for step in steps if step.name == "tell" and step.status == "succeeded"), "")

    return await eventually(told, within=10)


@pytest.mark.usefixtures("worker")
async def test_complete_gives_the_step_its_output_from_an_argument_a_file_or_stdin(
    at_gateway: Run, client: Client, tmp_path: Path
) -> None:
    document = tmp_path / "output.json"
    document.write_text('{"n": 12345678901234567890}')
    for source, given, expected in (
        (("--output", '["Zoë", 1.5]'), b"", ["Zoë", 1.5]),
        (("--output-file", str(document)), b"", {"n": 12345678901234567890}),
        (("-",), b'"from stdin"', "from stdin"),
        ((), b"unread", None),
    ):
        handle = await client.start(approve, "A-17")
        token = await token_of(client, handle.id)
        ended = await at_gateway("token", "complete", token, *source, stdin=given)
        assert (ended.code, ended.out, ended.err) == (ExitCode.OK, "step_status  succeeded\n", "")
        assert await handle.result(timeout=10) == expected


@pytest.mark.usefixtures("worker")
async def test_fail_makes_the_step_raise(here: Run, client: Client) -> None:
    handle = await client.start(approve, "caught")
    ended = await here("token", "fail", await token_of(client, handle.id), "--message", "not ours", "--type", "Refused")
    assert (ended.code, ended.out) == (ExitCode.OK, "step_status  failed\n")
    assert await handle.result(timeout=10) == ["Refused", "not ours"]

    handle = await client.start(approve, "raised")
    await here("token", "fail", await token_of(client, handle.id), "--message", "not ours")
    with pytest.raises(RunFailedError, match="TokenFailed: not ours"):
        await handle.result(timeout=10)


@pytest.mark.usefixtures("worker")
async def test_for_programs_it_is_json_without_the_token(here: Run, client: Client) -> None:
    for verb, status in ((("complete",), "succeeded"), (("fail", "--message", "no"), "failed")):
        handle = await client.start(approve, "caught")
        token = await token_of(client, handle.id)
        assert (await here("token", verb[0], token, *verb[1:], "-o", "json")).json == {"step_status": status}


@pytest.mark.usefixtures("worker")
async def test_a_token_is_taken_once_and_the_same_again_as_a_repeat(here: Run, client: Client) -> None:
    handle = await client.start(approve, "A-17")
    token = await token_of(client, handle.id)
    complete = ("token", "complete", token, "--output", "1")
    assert [(await here(*complete)).code for _ in range(2)] == [ExitCode.OK, ExitCode.OK]
    assert await handle.result(timeout=10) == 1
    for other in (("token", "complete", token, "--output", "2"), ("token", "fail", token, "--message", "no")):
        ended = await here(*other)
        assert (ended.code, ended.error) == (ExitCode.REFUSED, OVER)
    assert (await here(*complete)).code == ExitCode.OK


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("token", [UNKNOWN, "nonsense"])
async def test_a_token_that_nobody_has_given_out_is_not_found(token: str, here: Run) -> None:
    for arguments in (("complete", token), ("fail", token, "--message", "no")):
        ended = await here("token", *arguments)
        assert (ended.code, ended.error) == (ExitCode.NOT_FOUND, "no step waits, or has waited, for this token")
