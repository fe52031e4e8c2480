"""`python -m benchmarks WORKLOAD [--n N] [--slots N] [--reps N]`: one JSON line for each repetition.

`all` is every workload, three times.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks import backlog

WORKLOADS = {"backlog": ("noop", 20_000), "steps": ("ten-steps", 2_000)}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=[*WORKLOADS, "all"])
    parser.add_argument("--n", type=int, help="runs")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--reps", type=int, default=3)
    options = parser.parse_args()
    for workload in WORKLOADS if options.workload == "all" else [options.workload]:
        workflow, runs = WORKLOADS[workload]
        for _ in range(options.reps):
            measured = backlog.measure(workflow, options.n or runs, options.slots)
            sys.stdout.write(json.dumps({"workload": workload, **measured}) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
