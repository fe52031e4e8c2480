"""An embedded store that a test kills and starts again, in a process of its own.

A server that is forked from a process in which gRPC has threads may crash before it runs; this process has none.
`python -m tests.rpc.store_process DIRECTORY` prints its URL, and then does what it reads: `kill` or `start`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

from redflow_server.embedded import EmbeddedStore


class StoreProcess:
    """The store of one test. Its URL stays the same; what it acknowledged survives `kill`."""

    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, "-m", "tests.rpc.store_process", str(data_dir)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self._line()

    def kill(self) -> None:
        """Ends the server as a crash would."""
        self._tell("kill")

    def start(self) -> None:
        """Starts the server again, and returns when it answers."""
        self._tell("start")

    def _tell(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._line() == "done"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> StoreProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=10)


def main(data_dir: Path) -> None:
    with EmbeddedStore(data_dir) as store:
        print(store.url, flush=True)  # noqa: T201  # the line that the test waits for
        for line in sys.stdin:
            {"kill": store.kill, "start": store.start}[line.strip()]()
            print("done", flush=True)  # noqa: T201  # as above


if __name__ == "__main__":
    main(Path(sys.argv[1]))
