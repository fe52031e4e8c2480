"""The tests of the how-to pages pass as they stand there."""

from __future__ import annotations

import inspect
import re

import pytest

from redflow_sdk.testing import InlineResult, run_inline
from tests.tidy.test_docs import DOCS, blocks, rows, section, ticked

pytest_plugins = ["pytester"]
INLINE, RETRIES, GATEWAY = (
    DOCS / "how-to" / f"{page}.md" for page in ("test-workflows", "test-retries", "test-with-a-gateway")
)


def test_the_tests_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    (short, shop, inline), (gateway,) = blocks(INLINE, "python"), blocks(GATEWAY, "python")
    (pay, retries) = blocks(RETRIES, "python")
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    pytester.makepyfile(
        shop=shop,
        test_short=short,
        test_inline=inline,
        test_gateway=gateway,
        bank=pay,
        test_retries=retries.replace("from shop ", "from bank "),
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(passed=len(re.findall(r"^async def test_", short + inline + gateway + retries, re.M)))


def test_every_field_of_the_result_is_in_the_guide() -> None:
    told = [one for row in rows(section(INLINE, "## Arguments and result"))[-6:] for one in ticked(row[0])]
    there = [name for name in dir(InlineResult) if not name.startswith("_")]
    assert sorted(told) == sorted({*there, "step(name)"} - {"step"})


def test_every_argument_is_in_the_guide() -> None:
    table = rows(section(INLINE, "## Arguments and result"))[:-6]
    described = [ticked(row[0])[0] for row in table if ticked(row[0])]
    assert described == [name for name in inspect.signature(run_inline).parameters if name not in ("workflow", "input")]
