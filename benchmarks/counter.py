"""Counts what has run, in a file that the worker and the benchmark have both mapped: no call to anybody.

The file holds how many, and when the last one did by the monotonic clock, which is one clock for all processes. One
worker process writes it.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from dataclasses import dataclass
from typing import Final

RECORD: Final = struct.Struct("<qd")

_lock = threading.Lock()
_done = 0
_mapped: mmap.mmap | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """How many had run, and when the last of these did."""

    done: int
    at_s: float


def map_counter(path: str) -> mmap.mmap:
    """The file, mapped."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), RECORD.size)


def read(counter: mmap.mmap) -> Count:
    """What it says now."""
    return Count(*RECORD.unpack_from(counter))


def count() -> None:
    """One more has run."""
    global _done, _mapped
    with _lock:
        if _mapped is None:
            _mapped = map_counter(os.environ["REDFLOW_BENCH_COUNTER"])
        _done += 1
        RECORD.pack_into(_mapped, 0, _done, time.monotonic())
