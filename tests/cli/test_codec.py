"""`--codec` and `--middleware`: what values pass on their way in and out, and runs in a worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redflow_sdk import Client
from redflow_server.cli import main
from redflow_server.cli.exit_codes import ExitCode
from tests.cli.command import Ended
from tests.cli.conftest import Run, Start
from tests.eventually import eventually

VAULT = """
import zlib
from contextvars import ContextVar
from redflow_sdk import CallNext, Context, Middleware, RunInfo, workflow

around = ContextVar("around", default=())

class Zlib:
    name = "zlib"

    def encode(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)

class Nameless(Zlib):
    name = ""

class Marks(Middleware):
    def __init__(self, mark: str) -> None:
        self.mark = mark

    async def run(self, run: RunInfo, call_next: CallNext) -> object:
        around.set((*around.get(), self.mark))
        return await call_next()

codec, nameless, outer, inner = Zlib(), Nameless(), Marks("outer"), Marks("inner")

@workflow(name="keep", queue="vault", events=["kept"])
async def keep(ctx: Context, what: object) -> list[object]:
    return [await ctx.step.run("around", around.get), what]

@workflow(name="approve", queue="vault")
async def approve(ctx: Context) -> object:
    token = await ctx.step.token("approval")
    await ctx.step.run("tell", lambda: str(token))
    return await token.result()
"""


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a module of a user, in which commands of this process run; what they import is forgotten."""
    (tmp_path / "vault.py").write_text(VAULT)
    (tmp_path / "raising.py").write_text("raise ValueError('no key')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in sys.modules.keys() - before:
        del sys.modules[name]


async def test_commands_and_a_worker_with_the_codec_understand_each_other_and_nobody_else_does(
    vault: Path, target: str, client: Client, start: Start, here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = ("--middleware", "vault:outer", "--middleware", "vault:inner")
    await start("worker", "run", "vault", "--codec", "vault:codec", *around, "--target", target, cwd=vault)
    by = ("--codec", "vault:codec")
    queue = ("--queue", "vault")
    started = await here("run", "start", "keep", "--input", '"gold"', *queue, *by, "-o", "json")
    run_id = started.json["id"]

    result = await here("run", "result", run_id, *by)
    assert result.json == [["outer", "inner"], "gold"]
    steps = await here("run", "steps", run_id, *by, "-o", "json")
    assert steps.json["steps"][0]["output"] == ["outer", "inner"]

    blind = await here("run", "result", run_id)
    assert blind.error == (
        "the output was encoded by codec 'zlib', and this client has none; give it the codec by --codec MODULE:ATTR"
    )
    shown = await here("run", "get", run_id, "-o", "json")
    assert shown.json["input"]["codec"] == "zlib"

    monkeypatch.setenv("REDFLOW_CODEC", "vault:codec")
    shown = await here("run", "get", run_id, "-o", "json")
    assert (shown.json["input"], shown.json["output"]) == ("gold", [["outer", "inner"], "gold"])
    emitted = await here("event", "emit", "kept", "--payload", '"silver"', "--wait", "-o", "json")
    assert emitted.json["runs"][0]["output"] == [["outer", "inner"], "silver"]

    approval = (await here("run", "start", "approve", *queue, "-o", "json")).json["id"]

    async def told() -> str:
        steps = (await here("run", "steps", approval, "-o", "json")).json["steps"]
        return next((step["output"] for step in steps if step["name"] == "tell" and step["output"]), "")

    completed = await here("token", "complete", await eventually(told, within=10), "--output", '{"by": "Ada"}')
    assert (completed.code, completed.out) == (ExitCode.OK, "step_status  succeeded\n")
    assert (await here("run", "result", approval)).json == {"by": "Ada"}
    stored = await client.get_run(approval)
    assert "Ada" not in repr(stored.output)


@pytest.mark.parametrize(
    ("flag", "place", "says", "code"),
    [
        ("--codec", "vault", "must be MODULE:ATTR, as in shop.secrets:codec", ExitCode.USAGE),
        ("--codec", "vault.py", "must be MODULE:ATTR, as in shop.secrets:codec", ExitCode.USAGE),
        ("--codec", "./vault.py:codec", "must be MODULE:ATTR, as in vault:codec", ExitCode.USAGE),
        ("--codec", "vault:nothing", "there is no nothing in module vault", ExitCode.REFUSED),
        ("--codec", "vault:Zlib", "is a class; name an object of it, as by `it = Zlib(...)`", ExitCode.REFUSED),
        ("--codec", "vault:outer", "must have a name, encode and decode; is a Marks", ExitCode.REFUSED),
        ("--codec", "vault:nameless", "the name of the codec must ", ExitCode.REFUSED),
        ("--middleware", "vault", "must be MODULE:ATTR, as in shop.tracing:trace", ExitCode.USAGE),
        ("--middleware", "vault:Marks", "is a class; name an object of it, as by `it = Marks(...)`", ExitCode.REFUSED),
        ("--middleware", "vault:codec", "must be a Middleware; is a Zlib", ExitCode.REFUSED),
    ],
)
@pytest.mark.usefixtures("vault")
def test_what_is_no_codec_or_middleware_is_refused_in_one_sentence(
    flag: str, place: str, says: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = Ended(main(["worker", "run", "vault", flag, place]), *capsys.readouterr())
    assert ended.error.startswith(f"{flag} {place}: {says}")
    assert ended.code == code


@pytest.mark.usefixtures("vault")
def test_a_codec_whose_module_fails_or_is_not_there_ends_the_command_before_any_call(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = Ended(main(["run", "get", "run-1", "--codec", "nowhere:codec"]), *capsys.readouterr())
    assert ended.error.startswith("there is no module nowhere in ")
    ended = Ended(main(["run", "get", "run-1", "--codec", "raising:codec"]), *capsys.readouterr())
    assert ended.err.endswith("redflow: raising cannot be imported: ValueError: no key\n")
