"""What can go wrong beneath the product, by kind: each is struck for a while, and mended.

A fault is an async context: it is there inside, and mended after it. What it does to whom is drawn from the random
numbers that it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from random import Random
from types import MappingProxyType
from typing import Final

from tests.chaos.clocks import can_be_set
from tests.chaos.faults import clock, network, process, store
from tests.chaos.stage import Stage

Fault = Callable[[Stage, Random], AbstractAsyncContextManager[None]]

CLOCKS: Final[Mapping[str, Fault]] = MappingProxyType(
    {"gateway_clock_set": clock.gateway_clock_set, "redis_clock_set": clock.redis_clock_set}
)
FAULTS: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "gateway_frozen": process.gateway_frozen,
        "gateway_killed": process.gateway_killed,
        "worker_frozen": process.worker_frozen,
        "worker_killed": process.worker_killed,
        "workers_killed": process.workers_killed,
        "redis_clients_killed": store.clients_killed,
        "redis_frozen": store.frozen,
        "redis_full": store.full,
        "redis_killed": store.killed,
        "redis_paused": store.paused,
        "redis_restarted": store.restarted,
        "redis_scripts_flushed": store.scripts_flushed,
        "line_cut": network.line_cut,
        "line_frozen": network.line_frozen,
        "line_loses_replies": network.line_loses_replies,
        "line_loses_requests": network.line_loses_requests,
        "line_slow": network.line_slow,
        **(CLOCKS if can_be_set() else {}),
    }
)
"""All that this machine can do, by the name in reports."""
