"""The list of the peers: with what the worker and the client of each start."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from benchmarks.engine import Engine

PEERS: Final[Mapping[str, Engine]] = MappingProxyType({})
