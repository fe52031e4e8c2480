"""The processes under measurement: one Redis or Valkey, one gateway, one worker, each with its CPU time."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

PATIENCE_S = 120.0
PORTS = range(20_000, 30_000)


def free_port() -> int:
    """A port that is free now, and that the system gives to nobody who asks for any."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(process: subprocess.Popen[bytes]) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


class Rig:
    """Starts what is needed, and leaves nothing behind."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="redflow-bench-"))
        self._counter_file = self._folder / "counter"
        self._counter_file.write_bytes(bytes(8))
        self._lateness_file = self._folder / "lateness"
        self._lateness_file.touch()
        self.memory_file = self._folder / "memory"
        """Where a worker writes, when it is asked to, what it has in memory."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self.target = f"127.0.0.1:{free_port()}"
        self.redis_name = ""

    def start_redis(self) -> subprocess.Popen[bytes]:
        """Redis from PATH, else the embedded Valkey's binary; without persistence."""
        from redflow_server.embedded import find_server

        binary = shutil.which("redis-server") or str(find_server())
        version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
        self.redis_name = " ".join(version.split()[:3])
        self._redis_port = free_port()
        options = ["--port", str(self._redis_port), "--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        return self._start([binary, *options], self._redis_port)

    def start_gateway(self) -> subprocess.Popen[bytes]:
        """A gateway on that Redis."""
        port = self.target.rpartition(":")[2]
        command = ["server", "--redis", f"redis://127.0.0.1:{self._redis_port}/0", "--port", port]
        return self._start([sys.executable, "-m", "redflow_server.cli", *command], int(port))

    def start_worker(
        self, slots: int, app: str = "benchmarks.workflows:app", more: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """A worker with so many slots, and with more in its environment."""
        command = ["worker", "run", app, "--target", self.target, "--concurrency", str(slots)]
        return self._start([sys.executable, "-m", "redflow_server.cli", *command], None, more)

    def start_peer(self, command: list[str], slots: int) -> subprocess.Popen[bytes]:
        """A process of another engine, which finds Redis and its number of slots in the environment."""
        url = f"redis://127.0.0.1:{self._redis_port}/0"
        return self._start(command, None, {"REDFLOW_BENCH_REDIS": url, "REDFLOW_BENCH_SLOTS": str(slots)})

    def _start(
        self, command: list[str], port: int | None, more: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        files = {
            "REDFLOW_BENCH_COUNTER": str(self._counter_file),
            "REDFLOW_BENCH_LATENESS": str(self._lateness_file),
            "REDFLOW_BENCH_MEMORY": str(self.memory_file),
        }
        environment = {**os.environ, **files, **(more or {})}
        log = (self._folder / "log").open("ab")
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        log.close()
        self._processes.append(process)
        deadline = time.monotonic() + PATIENCE_S
        while port is not None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self._folder / "log").read_text()) from None
                time.sleep(0.02)
            else:
                break
        return process

    def done(self) -> int:
        """Runs that the worker has finished."""
        with self._counter_file.open("rb") as file, mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ) as counter:
            count: int = struct.unpack("q", counter[:8])[0]
            return count

    def lateness(self) -> list[float]:
        """How late the sleepers woke, in seconds, in the order in which they did."""
        written = self._lateness_file.read_bytes()
        return [late for (late,) in struct.iter_unpack("d", written)]

    def wait_until_done(self, count: int) -> None:
        """Returns when so many runs have finished."""
        deadline = time.monotonic() + PATIENCE_S
        while self.done() < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.done()} of {count} runs after {PATIENCE_S:.0f} s")
            time.sleep(0.01)

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
