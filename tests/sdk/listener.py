"""A gRPC server on loopback that can go away and come back on the same port. What it serves is its user's business."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

THREADS: Final = 64
BIND_WITHIN_S: Final = 5.0


class Listener:
    """A service that listens from `start` to `stop`. `add` is what its stubs have to add it to a server."""

    def __init__(self, add: Callable[[Any, grpc.Server], None]) -> None:  # Any: the service that inherits from this
        self._add = add
        self._server: grpc.Server | None = None
        self.port = 0

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listens. The first time on a free port, then on the same again."""
        deadline = time.monotonic() + BIND_WITHIN_S
        while True:
            threads = ThreadPoolExecutor(THREADS, thread_name_prefix="listener")
            server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
            self._add(self, server)
            try:
                self.port = server.add_insecure_port(self.target)
                break
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Is gone: every connection is reset, and nobody listens."""
        if self._server is not None:
            server, self._server = self._server, None
            server.stop(None).wait()
