"""The tests of the how-to pages pass as they stand there."""

from __future__ import annotations

import inspect
import re

import pytest

from redflow_sdk.testing import run_inline
from tests.tidy.test_docs import DOCS, blocks, rows, section, ticked

pytest_plugins = ["pytester"]
INLINE, GATEWAY = DOCS / "how-to" / "test-workflows.md", DOCS / "how-to" / "test-with-a-gateway.md"


def test_the_tests_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    (short, shop, inline), (gateway,) = blocks(INLINE, "python"), blocks(GATEWAY, "python")
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    pytester.makepyfile(shop=shop, test_short=short, test_inline=inline, test_gateway=gateway)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(passed=len(re.findall(r"^async def test_", short + inline + gateway, re.M)))


def test_every_argument_is_in_the_guide() -> None:
    described = [ticked(row[0])[0] for row in rows(section(INLINE, "## Arguments and result")) if ticked(row[0])]
    assert described == [name for name in inspect.signature(run_inline).parameters if name not in ("workflow", "input")]
