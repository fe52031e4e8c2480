"""The list of the peers: with what the worker and the client of each start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from benchmarks.engine import Engine
from benchmarks.peers.installing import install, modules_of, python_of
from benchmarks.rig import Rig


def _needs_no_server(rig: Rig) -> None:
    """Its workers and clients speak to Redis themselves."""


def _in_python(name: str, *worker: str) -> Engine:
    """A peer whose module here has its tasks and the calls of its client; it is its worker too, if none is named."""
    module = f"benchmarks.peers.{name}_app"
    return Engine(
        name=name,
        worker=(python_of(name), "-m", *(worker or (module,))),
        client=(python_of(name), "-m", "benchmarks.calling", module),
        start_servers=_needs_no_server,
        install=partial(install, name),
    )


def _bullmq() -> Engine:
    command = ("node", "benchmarks/peers/bullmq_app.mjs", modules_of("bullmq"))
    return Engine(
        name="bullmq",
        worker=(*command, "worker"),
        client=command,
        start_servers=_needs_no_server,
        install=partial(install, "bullmq"),
    )


_TASKIQ: Final = (
    *("taskiq", "worker", "benchmarks.peers.taskiq_app:broker", "--workers", "1"),
    *("--max-async-tasks", "{slots}", "--max-prefetch", "{slots}", "--log-level", "ERROR"),
)

_ALL: Final = (
    _bullmq(),
    _in_python("redflow"),
    _in_python("arq"),
    _in_python("saq"),
    _in_python("taskiq", *_TASKIQ),
)

PEERS: Final[Mapping[str, Engine]] = MappingProxyType({engine.name: engine for engine in _ALL})
