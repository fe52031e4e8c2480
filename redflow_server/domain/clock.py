"""The clock by which a gateway measures how old a claim is. Instants of runs are Redis' time, not this."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """Seconds that go on while the machine is suspended, where there is such a clock: leases do too."""
    return time.clock_gettime(_CLOCK)
