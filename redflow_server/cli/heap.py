"""The heap of a process of ours: how often Python's collector walks it."""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 20_000
"""Objects more than before, instead of 700: a busy process has thousands on their way at any moment."""


def settle() -> None:
    """Leaves out of every collection what is there now: modules, stubs, definitions. To be called after start-up.

    With both, collections take a third of the CPU they took in a busy gateway (perf, `python -m benchmarks backlog`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
