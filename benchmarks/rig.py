"""The processes under measurement: one Redis or Valkey, and what an engine needs; none of them outlives the rig."""

from __future__ import annotations

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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks.counter import RECORD, Count, map_counter, read
from benchmarks.usage import Meter, Process

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE_S: Final = 120.0
"""For so long nothing may move before a measurement is given up."""
END_S: Final = 15.0
LOOK_S: Final = 0.005
PORTS: Final = range(20_000, 30_000)


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


class Rig:
    """Starts what is needed, and leaves nothing behind."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="redflow-bench-"))
        counter = self._folder / "counter"
        counter.write_bytes(bytes(RECORD.size))
        self._counter = map_counter(str(counter))
        self._lateness_file = self._folder / "lateness"
        self._lateness_file.touch()
        self.memory_file = self._folder / "memory"
        """Where a worker writes, when it is asked to, what it has in memory."""
        self.processes: dict[str, Process] = {}
        """By what they are: redis, gateway, worker, client."""
        self._all: list[Process] = []
        self.target = f"127.0.0.1:{free_port()}"
        self.store = ""
        """Which Redis or Valkey it is."""
        self.redis_port = free_port()
        self.redis_url = f"redis://127.0.0.1:{self.redis_port}/0"
        self._environment = {
            **os.environ,
            "REDFLOW_TARGET": self.target,
            "REDFLOW_BENCH_REDIS": self.redis_url,
            "REDFLOW_BENCH_COUNTER": str(counter),
            "REDFLOW_BENCH_LATENESS": str(self._lateness_file),
            "REDFLOW_BENCH_MEMORY": str(self.memory_file),
        }

    def start_redis(self) -> Process:
        """Redis from PATH, else the embedded Valkey's binary; without persistence."""
        from redflow_server.embedded import find_server

        binary = shutil.which("redis-server") or str(find_server())
        version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
        self.store = " ".join(version.split()[:3])
        options = ["--port", str(self.redis_port), "--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        redis = self.start("redis", [binary, *options])
        self._wait_for_port(redis, self.redis_port)
        return redis

    def start_gateway(self) -> Process:
        """A gateway on that Redis."""
        port = self.target.rpartition(":")[2]
        command = ["server", "--redis", self.redis_url, "--port", port]
        gateway = self.start("gateway", [sys.executable, "-m", "redflow_server.cli", *command])
        self._wait_for_port(gateway, int(port))
        return gateway

    def start_worker(self, slots: int, app: str, more: Mapping[str, str] | None = None) -> Process:
        """A worker of ours with so many slots, and with more in its environment."""
        command = ["worker", "run", app, "--concurrency", str(slots)]
        return self.start("worker", [sys.executable, "-m", "redflow_server.cli", *command], more)

    def start(self, name: str, command: Sequence[str], more: Mapping[str, str] | None = None) -> Process:
        """A process, which may have children; where it finds everything else is in its environment."""
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if name == "client" else subprocess.DEVNULL,
                stdout=subprocess.PIPE if name == "client" else log,
                stderr=log,
                env={**self._environment, **(more or {})},
                cwd=ROOT,
                start_new_session=True,
            )
        self.processes[name] = process
        self._all.append(process)
        return process

    def log(self) -> str:
        """What the processes have said."""
        return (self._folder / "log").read_text(errors="replace")

    def _wait_for_port(self, process: Process, port: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(self.log()) from None
                time.sleep(0.02)
            else:
                return

    def meter(self) -> Meter:
        """What the processes that run now use from now on."""
        return Meter({name: process for name, process in self.processes.items() if process.poll() is None})

    def count(self) -> Count:
        """Runs that the worker has finished."""
        return read(self._counter)

    def lateness_ms(self) -> list[float]:
        """How late runs went on, in the order in which they did."""
        return [1000 * late_s for (late_s,) in struct.iter_unpack("d", self._lateness_file.read_bytes())]

    def wait_until_done(self, done: int) -> Count:
        """Returns when so many runs have finished."""
        counted = self.count()
        deadline = time.monotonic() + PATIENCE_S
        while counted.done < done:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{counted.done} of {done} runs, and none for {PATIENCE_S:.0f} s\n{self.log()}")
            time.sleep(LOOK_S)
            before, counted = counted, self.count()
            if counted.done > before.done:
                deadline = time.monotonic() + PATIENCE_S
        return counted

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Another signal must not leave anything behind.
        signals = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        for process in reversed(self._all):
            _end(process)
        self._counter.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        for number, handler in signals.items():
            signal.signal(number, handler)


def _end(process: Process) -> None:
    """Ends a process and the children it has: its session is its own."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
