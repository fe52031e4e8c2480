"""A Redis on a port, which writes down what it acknowledges: before it does, so that a kill loses nothing, or every
second, which is what it does by default.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from redis.asyncio import Redis
from redis.exceptions import RedisError

from redflow_server.embedded import find_server
from tests.chaos.processes import Program, quiet_port
from tests.eventually import eventually

READY_S = 30.0


class RedisServer(Program):
    """The embedded Valkey's binary, whose clock can be set (Debian's Redis does not start under libfaketime), with its
    data in a folder.
    """

    def __init__(
        self,
        folder: Path,
        password: str,
        *options: str,
        log: Path,
        environment: dict[str, str] | None = None,
        appendfsync: str = "always",
    ) -> None:
        super().__init__("redis", log=log, environment=environment)
        self.port = quiet_port()
        self._password = password
        self._folder = folder
        self._options = options
        self._appendfsync = appendfsync
        folder.mkdir()

    @property
    def command(self) -> list[str]:
        """The server, without snapshots."""
        binary = str(find_server())
        durable = ("--appendonly", "yes", "--appendfsync", self._appendfsync, "--save", "")
        place = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder))
        return [
            binary,
            *place,
            "--requirepass",
            self._password,
            "--enable-debug-command",
            "local",
            *durable,
            *self._options,
        ]

    @property
    def url(self) -> str:
        """Straight to it."""
        return self.url_by(self.port)

    def url_by(self, port: int) -> str:
        """By way of a line that listens on this port."""
        return f"redis://:{quote(self._password, safe='')}@127.0.0.1:{port}/0"

    def client(self) -> Redis:
        """One that does what no gateway does."""
        return Redis(port=self.port, password=self._password, socket_timeout=5.0)

    async def start(self) -> None:
        """Starts it, and returns when it has read its data."""
        await super().start()
        await eventually(self._answers, within=READY_S, saying="Redis does not answer")

    async def _answers(self) -> bool:
        client = self.client()
        try:
            return bool(await client.ping())
        except RedisError:
            return False
        finally:
            await client.aclose()
