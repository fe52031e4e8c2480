"""Becomes another program that ends when its parent does (Linux): `python tethered.py PARENT-PID PROGRAM ARGS...`.

Run as a file, by an interpreter of its own. In the child of a fork no Python may run when the parent has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def main() -> None:
    """The command."""
    parent, program, *arguments = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == int(parent):  # else it has ended before we asked to be told
        os.execv(program, [program, *arguments])  # noqa: S606  # the point of it


if __name__ == "__main__":
    main()
