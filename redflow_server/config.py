"""Settings of a gateway, each with its unit and default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from redflow_server.domain.names import Limits
from redflow_server.domain.timing import Timing
from redflow_server.engine.upkeep import UpkeepSettings
from redflow_server.store.keys import DEFAULT_PREFIX

DEFAULT_PORT: Final = 7379


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a gateway is told from outside."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    prefix: str = DEFAULT_PREFIX
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    max_losses: int = 3
    drain_grace_ms: int = 10_000
    allows_reset: bool = False
    accepts_eviction: bool = False
    has_reflection: bool = False
    shares_port: bool = False
    """Whether other gateways of this machine may listen on the port, too."""
