"""A `redflow` command that tells on SIGUSR1 what its process holds: `python -m tests.leaks.counted COUNTS ARGS...`.

The product knows nothing of it. What is counted is written to the file COUNTS, as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from redflow_server.cli import main


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds: tasks of all its loops that are not done, and objects that Python's collector knows."""

    tasks: int
    objects: int
    kinds: dict[str, int] = field(repr=False)
    """Objects by the name of their type."""


def held_here() -> Held:
    """What this process holds. What was frozen at its start is left out, as it is of every collection."""
    gc.collect()
    objects = gc.get_objects()
    # By the type itself: isinstance asks the objects, and some of them answer by doing something.
    tasks = sum(issubclass(type(each), asyncio.Task) and not each.done() for each in objects)
    return Held(tasks, len(objects), dict(Counter(type(each).__qualname__ for each in objects)))


def tell_on_signal(path: Path) -> None:
    """From now on SIGUSR1 writes what is held."""

    def tell(number: int, frame: object) -> None:
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(asdict(held_here())))
        os.replace(unfinished, path)  # whoever reads it finds all of it

    signal.signal(signal.SIGUSR1, tell)


if __name__ == "__main__":
    tell_on_signal(Path(sys.argv.pop(1)))
    sys.argv[0] = "redflow"
    sys.exit(main())
