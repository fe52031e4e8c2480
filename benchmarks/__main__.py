"""`python -m benchmarks WORKLOAD [--n N] [--slots N] [--reps N]`: one JSON line for each repetition.

`all` is every workload, and `backlog` in other engines (`peers`) right after ours, three times; the sleepers once.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks import backlog, children, peer, sleepers

WORKLOADS = {"backlog": ("noop", 20_000), "steps": ("ten-steps", 2_000)}
PEERS, CHILDREN, SLEEPERS = "peers", "children", "sleepers"
WAYS = ("park", "suspend")
"""How the run waits that waits for a child: with its handler in memory, or without."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=[*WORKLOADS, CHILDREN, SLEEPERS, PEERS, "all"])
    parser.add_argument("--n", type=int, help="runs")
    parser.add_argument("--sleepers", type=int, default=10_000, help="runs that sleep (%(default)d)")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--reps", type=int, default=3, help="how often, but for the sleepers (%(default)d)")
    options = parser.parse_args()
    for _ in range(options.reps):
        for workload, (workflow, runs) in WORKLOADS.items():
            if options.workload in (workload, "all"):
                _show(workload, backlog.measure(workflow, options.n or runs, options.slots))
        for engine in peer.WORKERS if options.workload in (PEERS, "all") else ():
            _show(f"backlog in {engine}", peer.measure(engine, options.n or WORKLOADS["backlog"][1], options.slots))
        for way in WAYS if options.workload in (CHILDREN, "all") else ():
            _show(CHILDREN, children.measure(options.n or 500, way))
    if options.workload in (SLEEPERS, "all"):
        _show(SLEEPERS, sleepers.measure(options.sleepers))
    return 0


def _show(workload: str, measured: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"workload": workload, **measured}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
