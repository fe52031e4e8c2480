"""Shows that the oracle finds faults: takes a line out of a copy of the scripts, and plays until that is seen.

`python -m tests.oracle.plant` does it with each line of PLANTS and says which verb showed it, and how; `--any N` takes
N lines of all scripts by chance instead.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from redflow_server.store.scripts import FOLDER
from tests.oracle.__main__ import a_place, seeds
from tests.oracle.bench import Mismatch
from tests.oracle.runs import Effort, Played, play

SECONDS: Final = 120.0
FIRST_SEED: Final = 1


@dataclass(frozen=True)
class Plant:
    """A line that is taken out of a script or an include, by what it says."""

    file: str
    line: str


PLANTS: Final = (
    Plant("cancel.lua", "put(run, 'cancelReason', ARGV[3])"),
    Plant("renew.lua", "put(run, 'leaseOwner', stamp)"),
    Plant("fail.lua", "put(run, 'failures', attempt)"),
    Plant("release.lua", "if wanted == 'queued' and delay_ms > 0 then wanted = 'scheduled' end"),
    Plant("fire_timers.lua", "redis.call('ZREM', TIMERS, member)"),
    Plant("purge.lua", "if pointer and redis.call('GET', pointer) == run.id then redis.call('UNLINK', pointer) end"),
    Plant("fire_schedule.lua", "if is_new then redis.call('ZADD', CRON_LAST, occurrence, id) end"),
    Plant("step_emit.lua", "run = read_run(run.id)"),
    Plant("reap.lua", "redis.call('DEL', REAP_NOT_BEFORE)"),
    Plant("record_step.lua", "withdraw(run, name, read_wait(entry))"),
    Plant("lib/lane.lua", "if redis.call('EXISTS', lane_key(name)) == 0 then redis.call('ZREM', LANES, name) end"),
    Plant("lib/resolve.lua", "if wait.group ~= '' then open = open - withdraw_rivals(run, wait.group) end"),
    Plant(
        "lib/leave_to_fan_out.lua",
        "if not redis.call('ZSCORE', FAN_OUTS, event.id) then redis.call('UNLINK', key) end",
    ),
    Plant("lib/deliver.lua", "redis.call('ZREM', DELIVERIES, number .. ' ' .. channel)"),
)


def planted(plant: Plant, folder: Path) -> Path:
    """A copy of all scripts without the line."""
    scripts = folder / "lua"
    shutil.rmtree(scripts, ignore_errors=True)
    shutil.copytree(FOLDER, scripts)
    path = scripts / plant.file
    lines = path.read_text().splitlines(keepends=True)
    [at] = [number for number, line in enumerate(lines) if line.strip() == plant.line]
    path.write_text("".join(lines[:at] + lines[at + 1 :]))
    return scripts


def any_plants(count: int, chance: Random) -> list[Plant]:
    """Lines that stand once in their file and are whole statements, as far as one sees."""
    found = []
    for path in sorted(FOLDER.rglob("*.lua")):
        lines = [line.strip() for line in path.read_text().splitlines()]
        name = str(path.relative_to(FOLDER))
        found += [Plant(name, line) for line in lines if _is_statement(line) and lines.count(line) == 1]
    return chance.sample(found, count)


def _is_statement(line: str) -> bool:
    is_call = line.startswith(
        ("put(", "redis.call(", "save(", "settle(", "finish(", "leave(", "return ", "count_effect(")
    )
    is_whole_if = line.startswith("if ") and line.endswith(" end")
    return (is_call and line.endswith(")") and line.count("(") == line.count(")")) or is_whole_if


def looked_for(plant: Plant, seconds: float) -> str:
    """What saw it first, after how long; or that nothing did."""
    began, played = time.monotonic(), Played()
    with tempfile.TemporaryDirectory(prefix="redflow-plant-") as folder:
        try:
            with a_place(planted(plant, Path(folder))) as place:
                play(seeds(FIRST_SEED, seconds, None), place, played, Effort.FIND)
        except Exception as seen:  # a script that cannot do without the line raises in whatever way
            what = str(seen).partition("\n\n")[2].splitlines() if isinstance(seen, Mismatch) else [repr(seen)]
            told = next((line for line in what if not line.startswith("was answered")), "")
            return f"{time.monotonic() - began:5.1f} s, seed {played.seed}, by {played.counts.last}: {told[:160]}"
    return f"NOT SEEN in {seconds:.0f} s"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--any", type=int, default=0, metavar="N", help="so many lines by chance")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each of them")
    parser.add_argument("--seed", type=int, default=1, help="by which lines are chosen")
    options = parser.parse_args()
    plants = any_plants(options.any, Random(options.seed)) if options.any else PLANTS
    unseen = 0
    for plant in plants:
        told = looked_for(plant, options.seconds)
        unseen += told.startswith("NOT")
        sys.stdout.write(f"{plant.file:<24} {plant.line}\n    {told}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(plants) - unseen} of {len(plants)} were seen\n")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
