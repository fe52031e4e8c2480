"""A clock that can be set, for Redis and for gateways: by libfaketime, where it is installed.

Workers are no good for it: the threads of gRPC's clients, which wait until a time of day, burn all CPU there is.

Only the time of day is set, as NTP or an administrator does it; what counts seconds goes on
(https://github.com/wolfcw/libfaketime: FAKETIME_TIMESTAMP_FILE, FAKETIME_DONT_FAKE_MONOTONIC).
"""

from __future__ import annotations

from pathlib import Path

LIBRARIES = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def can_be_set() -> bool:
    """Whether libfaketime is there."""
    return bool(LIBRARIES)


class Clock:
    """The clock of one process, over its restarts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        """Of the process."""
        if not can_be_set():
            return {}
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset_s: int) -> None:
        """So many seconds before or after the time there is; the process sees it within a second."""
        self._file.write_text(f"{offset_s:+d}s\n")
