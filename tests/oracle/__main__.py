"""Plays the oracle for as long as one likes: `python -m tests.oracle --seconds 600 --seed 1`.

Each example has a seed of its own, counted up from the one that is given. The seed of one that fails is printed;
`--seed N --examples 1` plays it again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redflow_server.embedded import EmbeddedStore
from tests.oracle.bench import Mismatch
from tests.oracle.runs import Effort, Place, Played, play

NEVER_S = 10**9


@contextmanager
def a_place(scripts: Path | None = None) -> Iterator[Place]:
    """The server that REDFLOW_TEST_REDIS_URL names, else an embedded one."""
    with tempfile.TemporaryDirectory(prefix="redflow-oracle-") as folder:
        if url := os.environ.get("REDFLOW_TEST_REDIS_URL"):
            yield Place(url, Path(folder), scripts)
        else:
            with EmbeddedStore() as embedded:
                yield Place(embedded.url, Path(folder), scripts)


def seeds(first: int, seconds: float, most: int | None) -> Iterator[int]:
    """From the first one up, while there is time."""
    end = time.monotonic() + seconds
    numbers = itertools.count(first) if most is None else range(first, first + most)
    return itertools.takewhile(lambda _: time.monotonic() < end, numbers)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=None, help="for how long (60 unless --examples is given)")
    parser.add_argument("--examples", type=int, default=None, help="how many, at most")
    parser.add_argument("--seed", type=int, default=None, help="of the first example (by the time of day)")
    parser.add_argument("--no-shrink", action="store_true", help="show a failure as it was found, at once")
    options = parser.parse_args()
    first = int(time.time()) if options.seed is None else options.seed
    seconds = options.seconds or (60 if options.examples is None else NEVER_S)
    effort = Effort.FIND if options.no_shrink else Effort.SHRINK
    sys.stdout.write(f"seeds from {first}\n")
    played, began = Played(), time.monotonic()
    try:
        with a_place() as place:
            play(seeds(first, seconds, options.examples), place, played, effort)
    except Mismatch as mismatch:
        sys.stdout.write(f"\n{mismatch}\n\nfound by seed {played.seed}; again: ")
        sys.stdout.write(f"make oracle SEED={played.seed} EXAMPLES=1\n")
        return 1
    sys.stdout.write(
        f"{played.counts.table()}\n{played.examples} examples in {time.monotonic() - began:.0f} s, no mismatch\n"
    )
    never = played.counts.never_reached()
    if never:
        sys.stdout.write(f"never reached: {', '.join(never)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
