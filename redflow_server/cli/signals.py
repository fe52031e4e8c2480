"""Signals that ask a command which goes on to end."""

from __future__ import annotations

import asyncio
import signal
from types import TracebackType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
HANG_UP: Final = signal.SIGHUP


class Signals:
    """SIGTERM, SIGINT, and SIGHUP of a closed terminal: the first asks for a drain, the second for the end at once.

    While it is open they interrupt nothing, so whatever was started is also stopped. `nohup` keeps SIGHUP ignored.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._numbers = SIGNALS if outlives_terminal() else (*SIGNALS, HANG_UP)

    def _arrived(self) -> None:
        (self.second if self.first.is_set() else self.first).set()

    def __enter__(self) -> Signals:
        for number in self._numbers:
            asyncio.get_running_loop().add_signal_handler(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in self._numbers:
            asyncio.get_running_loop().remove_signal_handler(number)


def outlives_terminal() -> bool:
    """Whether SIGHUP is ignored, as under `nohup`."""
    return signal.getsignal(HANG_UP) is signal.SIG_IGN
