"""The gateway's clock for the age of claims: leases go on while a machine is suspended, and so does it."""

from __future__ import annotations

import time

import pytest

from redflow_server.domain.clock import now_s


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that goes on in suspend")
def test_it_is_the_clock_that_goes_on_while_the_machine_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= now_s() <= time.clock_gettime(time.CLOCK_BOOTTIME)
