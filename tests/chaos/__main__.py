"""Faults of every kind under load: `python -m tests.chaos --seconds 600 --seed 7`. Prints one JSON line; exits 1 on a
violation. README.md has what is checked, and how to read a violation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Final

from tests.chaos.fault_rounds import FaultReport, FaultRounds
from tests.chaos.faults import FAULTS
from tests.chaos.journal import Journal
from tests.chaos.kill_rounds import Starts
from tests.chaos.modes import MODES
from tests.chaos.plan import Plan
from tests.chaos.rounds import Load, Report
from tests.chaos.wait_rounds import Waits

PART_S: Final = 90.0


def _starts(plan: Plan, report: Report, journal: Journal) -> Load:
    return Starts(plan, report, journal)


def _waits(mode: str, plan: Plan, report: Report, journal: Journal) -> Load:
    return Waits(plan, mode, report, journal)


LOADS: Final = tuple(load for mode in MODES for load in (_starts, partial(_waits, mode)))
"""What is started, part by part."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by chance; it is in the report")
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS), help="only these kinds")
    parser.add_argument("--keep", type=Path, help="an empty folder for journals, logs and data")
    options = parser.parse_args()
    total = FaultReport(options.seed, rounds=0)
    with tempfile.TemporaryDirectory() as made:
        for part, load in zip(count(), cycle(LOADS)):
            left_s = options.seconds - total.seconds
            if left_s <= 0:
                break
            folder = (options.keep or Path(made)) / f"part-{part}"
            folder.mkdir(parents=True)
            rounds = FaultRounds(options.seed + part, options.faults, load, f"chaos-{part}", folder)
            _add(total, asyncio.run(rounds.run(min(PART_S, left_s))))
    sys.stdout.write(json.dumps(_document(total)) + "\n")
    return 1 if total.violations else 0


def _document(report: FaultReport) -> dict[str, object]:
    return {
        "seed": report.seed,
        "seconds": report.seconds,
        "runs": report.runs,
        "faults": dict(sorted(report.faults.items())),
        "moved_runs": report.moved_runs,
        "repeated_steps": report.repeated_steps,
        "checks": report.checks,
        "violations": report.violations,
        "recovery_s": dict(sorted(report.recoveries_s.items())),
    }


def _add(total: FaultReport, part: FaultReport) -> None:
    total.runs += part.runs
    total.faults += part.faults
    total.moved_runs += part.moved_runs
    total.repeated_steps += part.repeated_steps
    total.checks += part.checks
    total.violations += [f"{violation} (seed {part.seed})" for violation in part.violations]
    total.seconds = round(total.seconds + part.seconds, 1)
    for kind, took_s in part.recoveries_s.items():
        total.recoveries_s[kind] = max(took_s, total.recoveries_s.get(kind, 0.0))


if __name__ == "__main__":
    sys.exit(main())
