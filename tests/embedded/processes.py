"""What the tests ask of and about processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis import Redis

from redflow_server.embedded import EmbeddedStore
from tests.embedded import holder

ROOT: Final = Path(__file__).resolve().parents[2]


@contextmanager
def connected(store: EmbeddedStore) -> Iterator[Redis]:
    """A client of the store."""
    client = Redis.from_url(store.url)
    try:
        yield client
    finally:
        client.close()


def is_alive(pid: int) -> bool:
    """Whether the process runs. One that has ended and that nobody has asked about yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_until(what: Callable[[], bool], within: float = 10.0) -> None:
    """Returns when it is so; fails at the deadline."""
    deadline = time.monotonic() + within
    while not what():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.01)


def listening_ports(pid: int) -> set[int]:
    """The TCP ports on which the process listens."""
    own = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(link))
        except OSError:
            continue
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


@dataclass(frozen=True)
class Holder:
    """A process of its own that has a store."""

    process: subprocess.Popen[bytes]
    server_pid: int
    socket: Path

    def kill(self) -> None:
        """Ends it without a chance to stop its store."""
        self.process.kill()
        self.process.wait()


@contextmanager
def holder_of(data_dir: Path) -> Iterator[Holder]:
    """A process that has a store on this directory; nothing of it is left at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", holder.__name__, str(data_dir)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said = json.loads(process.stdout.readline() or b"{}")
    try:
        assert said, f"it has no store: {process.wait(10)}"
        yield Holder(process, said["pid"], Path(said["socket"]))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        if said:
            _end(said["pid"])
            shutil.rmtree(Path(said["socket"]).parent, ignore_errors=True)


def _end(pid: int) -> None:
    if is_alive(pid):
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
