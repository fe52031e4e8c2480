"""`python -m benchmarks WORKLOAD [--n N] [--slots N] [--reps N]`: one JSON line for each repetition."""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks import backlog

WORKLOADS = {"backlog": ("noop", 20_000), "steps": ("ten-steps", 2_000)}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--n", type=int, help="runs")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--reps", type=int, default=1)
    options = parser.parse_args()
    workflow, runs = WORKLOADS[options.workload]
    for _ in range(options.reps):
        measured = backlog.measure(workflow, options.n or runs, options.slots)
        sys.stdout.write(json.dumps({"workload": options.workload, **measured}) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
