"""The benchmarks' table of workloads says what their list says, and every peer that is named is there and pinned."""

from __future__ import annotations

import tomllib

from benchmarks.peers.engines import PEERS
from benchmarks.peers.installing import PINS
from benchmarks.workloads import WORKLOADS
from tests.tidy.source_files import ROOT
from tests.tidy.test_docs import rows, section, ticked

README = ROOT / "benchmarks" / "README.md"
WORKLOAD_ROWS = rows(section(README, "## Workloads").partition("### ")[0])


def test_every_workload_is_in_the_table_with_how_much_it_does() -> None:
    table = {ticked(name)[0]: by_default.split()[0] for name, _, by_default, _ in WORKLOAD_ROWS}
    assert table == {workload.name: f"{workload.n:,}" for workload in WORKLOADS.values()}


def test_the_table_says_which_peers_do_the_same_work() -> None:
    table = {ticked(name)[0]: peers.lower() for name, _, _, peers in WORKLOAD_ROWS}
    said = {
        workload.name: "all" if set(workload.peers) == set(PEERS) else ", ".join(workload.peers)
        for workload in WORKLOADS.values()
    }
    assert table == said


def test_every_peer_is_pinned_and_described() -> None:
    described = {row[0].partition("]")[0].strip("[").lower() for row in rows(section(README, "### Peers"))}
    assert set(tomllib.loads(PINS.read_text())) == set(PEERS) == described
