"""What the exit code of `redflow` says. The only place that gives them numbers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNAVAILABLE = 3
    NOT_FOUND = 4
    RUN_FAILED = 5
    RUN_CANCELED = 6
    TIMED_OUT = 7
    # What a shell reports of a process that one of these signals has ended: 128 and the signal's number.
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANING: Final[Mapping[ExitCode, str]] = {
    ExitCode.OK: "done",
    ExitCode.REFUSED: "refused, failed, or doctor has findings",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.UNAVAILABLE: "the gateway or its Redis is away",
    ExitCode.NOT_FOUND: "there is no such run, workflow, queue, worker, schedule or token",
    ExitCode.RUN_FAILED: "the run that was waited for has failed",
    ExitCode.RUN_CANCELED: "the run that was waited for was canceled",
    ExitCode.TIMED_OUT: "the run has not ended in time",
    ExitCode.INTERRUPTED: "ended by Ctrl-C; what serves drains and ends with 0, once it has begun",
    ExitCode.BROKEN_PIPE: "who read the output went away",
}
"""One line for each, as `redflow --help` shows them."""
