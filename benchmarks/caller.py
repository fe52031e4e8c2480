"""A client process as the benchmark sees it: it is ready, it is told to go, it says what its calls took."""

from __future__ import annotations

import json
import select
from dataclasses import dataclass

from benchmarks.calling import READY
from benchmarks.engine import Load
from benchmarks.rig import PATIENCE_S, Rig


@dataclass(frozen=True, slots=True)
class Called:
    """What the calls of a client took."""

    seconds: float
    cpu_s: float
    took_ms: tuple[float, ...]
    """Each of them; none where they were made in batches."""


class Caller:
    """A client that makes calls of one kind, warmed up."""

    def __init__(self, rig: Rig, load: Load, kind: str, warm_up: int) -> None:
        self._rig = rig
        numbers = (load.n, load.at_once, warm_up)
        self._process = rig.start("client", [*load.engine.client, kind, *map(str, numbers)])
        self._line_that_begins(READY)

    def go(self) -> Called:
        """Makes the calls."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        told = json.loads(self._line_that_begins("{"))
        return Called(told["seconds"], told["cpu_s"], tuple(told["took_ms"]))

    def end(self) -> None:
        """Tells the process to end, and waits until it has."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)

    def _line_that_begins(self, beginning: str) -> str:
        """What it says next of that kind: libraries may write lines of their own."""
        stream = self._process.stdout
        assert stream is not None
        while select.select([stream], [], [], PATIENCE_S)[0]:
            line = stream.readline().decode()
            if line.startswith(beginning):
                return line
            if not line:
                raise RuntimeError(f"the client has ended\n{self._rig.log()}")
        raise TimeoutError(f"the client said nothing for {PATIENCE_S:.0f} s\n{self._rig.log()}")
