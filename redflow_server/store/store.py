"""A typed method for each script, of the same name; they stand in `calls/` by what they are about. Each returns a
future; what it may raise is StoreUnavailable and StoreFull beside the refusals it names. `now_ms` stands in for Redis'
clock in tests.
"""

from __future__ import annotations

from redflow_server.store.calls.events import EventScripts
from redflow_server.store.calls.leases import LeaseScripts
from redflow_server.store.calls.registry import RegistryScripts
from redflow_server.store.calls.runs import RunScripts
from redflow_server.store.calls.upkeep import UpkeepScripts


class Store(RunScripts, LeaseScripts, EventScripts, UpkeepScripts, RegistryScripts):
    """The runs and the registry in Redis."""
