"""Answers those who probe a worker: HTTP `GET /livez` and `/readyz`.

On a thread of its own, so that it answers while a handler blocks the loop of the worker.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from redflow_sdk import WorkerHealth
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.listening import ListenAddress, address, why_not_listening

STALLED_S: Final = 10.0
"""A worker whose loops have not turned for so long is not live."""
REQUEST_TIMEOUT_S: Final = 5.0
MAX_HEAD_BYTES: Final = 8 * 1024
MAX_CONNECTIONS: Final = 64

_REQUEST: Final = re.compile(rb"([A-Z]+) (/[!-~]*) HTTP/1\.[01]\r\n")
_HEAD_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, and why in a line."""

    status: HTTPStatus
    text: str

    def encoded(self) -> bytes:
        """As it goes over the wire."""
        body = f"{self.text}\n".encode()
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
        ]
        if self.status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET")
        return "\r\n".join(lines).encode() + _HEAD_END + body


def liveness(health: WorkerHealth) -> Answer:
    """Whether the loops of the worker turn."""
    if health.stalled_for > STALLED_S:
        text = f"the event loops of the worker have not turned for {health.stalled_for:.0f} s"
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, text)
    return Answer(HTTPStatus.OK, "ok")


def readiness(health: WorkerHealth) -> Answer:
    """Whether the worker takes runs."""
    if health.is_ready:
        return Answer(HTTPStatus.OK, "ok")
    text = "the worker drains" if health.is_draining else "no session with a gateway is open"
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, text)


PROBES: Final = {b"/livez": liveness, b"/readyz": readiness}


class Probes:
    """The endpoint of a worker. It ends with the process."""

    def __init__(self, health: Callable[[], WorkerHealth]) -> None:
        self._health = health
        self._connections = 0

    def open(self, where: ListenAddress) -> str:
        """Listens from now on; where. Raises CommandFailed."""
        listening: Future[int] = Future()
        serving = self._serve(where, listening)
        threading.Thread(target=asyncio.run, args=(serving,), name="redflow-probes", daemon=True).start()
        try:
            return address(where.host, listening.result())
        except OSError as error:
            raise CommandFailed(why_not_listening(where.host, where.port) or str(error)) from error

    async def _serve(self, where: ListenAddress, listening: Future[int]) -> None:
        try:
            server = await asyncio.start_server(self._converse, where.host, where.port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            listening.set_exception(error)
            return
        listening.set_result(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    await self._answer(reader, writer)
        except (TimeoutError, ConnectionError):
            pass  # nobody is there who could be told
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(_HEAD_END)
        except asyncio.LimitOverrunError:
            answer = Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {MAX_HEAD_BYTES} bytes")
        except asyncio.IncompleteReadError as ended:
            if not ended.partial:
                return
            answer = Answer(HTTPStatus.BAD_REQUEST, "the request has no end")
        else:
            answer = self._answer_to(head)
        writer.write(answer.encoded())
        writer.write_eof()
        # What the client still sends is read: closed over it, the connection would be reset, and the answer with it.
        while await reader.read(MAX_HEAD_BYTES):
            pass

    def _answer_to(self, head: bytes) -> Answer:
        request = _REQUEST.match(head)
        if request is None:
            return Answer(HTTPStatus.BAD_REQUEST, "not a request of HTTP/1.1")
        probe = PROBES.get(request[2].partition(b"?")[0])
        if probe is None:
            return Answer(HTTPStatus.NOT_FOUND, "there are /livez and /readyz")
        if request[1] != b"GET":
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
        return probe(self._health())
