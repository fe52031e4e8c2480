"""`python -m tests.leaks [SCENARIO ...]`: whether anything grows that should not. Prints a JSON line for each scenario;
exits 1 when something grows, or is wrong in the end. README.md has what each plays, and how it is judged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.leaks.scenarios import SCENARIOS, Scenario
from tests.leaks.scene import Report, set_up


async def _played(scenario: Scenario, operations: int, folder: Path) -> Report:
    report = Report(scenario.name, operations)
    try:
        async with set_up(folder, report) as scene:
            await scenario.play(scene, report)
    except AssertionError as error:
        report.violations.append(f"broke off: {error}")
    return report


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.leaks",
        description=__doc__,
        epilog="\n".join(f"{each.name:12}{each.about}" for each in SCENARIOS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all of them by default")
    parser.add_argument("--operations", type=int, help="how much of it (by default as README.md has it)")
    parser.add_argument("--keep", type=Path, help="an empty folder for logs and data")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario: {', '.join(sorted(unknown))}")
    failed = False
    with tempfile.TemporaryDirectory() as made:
        for name in options.scenarios or SCENARIOS:
            scenario = SCENARIOS[name]
            folder = (options.keep or Path(made)) / name
            folder.mkdir(parents=True)
            began = time.monotonic()
            report = asyncio.run(_played(scenario, options.operations or scenario.operations, folder))
            seconds = round(time.monotonic() - began, 1)
            sys.stdout.write(json.dumps({**asdict(report), "seconds": seconds}) + "\n")
            sys.stdout.flush()
            failed = failed or bool(report.violations)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
