"""The state machine: the rules of all areas on one table."""

from __future__ import annotations

from tests.oracle.bench import Server
from tests.oracle.counts import Counts
from tests.oracle.rules_events import EventRules
from tests.oracle.rules_leases import LeaseRules
from tests.oracle.rules_registry import RegistryRules
from tests.oracle.rules_runs import RunRules
from tests.oracle.rules_upkeep import UpkeepRules


def machine_on(on_server: Server, into_counts: Counts, seed: int) -> type[RunRules]:
    """A machine that plays on this server and counts here."""

    class Oracle(RunRules, LeaseRules, EventRules, RegistryRules, UpkeepRules):
        server = on_server
        counts = into_counts
        salt = seed

    return Oracle
