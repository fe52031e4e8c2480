"""`python -m benchmarks WORKLOAD [--json]`: what the engine costs, measured; a line for each workload.

With --peer the same work is done by another engine too, in turn with ours: `ratio` is ours by the peer's, of rates or,
for `roundtrip`, of median times.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from benchmarks.engine import OURS, Engine
from benchmarks.figures import Comparison, Figures, as_json, as_text, compare, medians
from benchmarks.peers.engines import PEERS
from benchmarks.workloads import WORKLOADS, Workload

ALL: Final = "all"
ROUNDS_ALONE: Final = 1
ROUNDS_WITH_A_PEER: Final = 2

Show = Callable[[str, Figures, Comparison | None], str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says."""

    n: int | None
    at_once: int | None
    rounds: int
    peer: Engine | None
    show: Show


def main() -> int:
    """The command."""
    signal.signal(signal.SIGTERM, _end)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="\n".join(f"{each.name:16}{each.about}" for each in WORKLOADS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workload", choices=[*WORKLOADS, ALL])
    parser.add_argument("--n", type=_positive, help="how many (by default as README.md has it)")
    parser.add_argument(
        *("--concurrency", "--outstanding"), type=_positive, dest="at_once", metavar="N", help="how many at once"
    )
    parser.add_argument("--peer", choices=PEERS, help="another engine, measured in turn with ours")
    parser.add_argument(
        "--rounds", type=_positive, help=f"measurements ({ROUNDS_ALONE}; with a peer {ROUNDS_WITH_A_PEER} of each)"
    )
    parser.add_argument(
        "--json", action="store_const", const=as_json, default=as_text, dest="show", help="one line of JSON"
    )
    options = parser.parse_args()
    peer = PEERS[options.peer] if options.peer else None
    rounds = options.rounds or (ROUNDS_WITH_A_PEER if peer else ROUNDS_ALONE)
    asked = Asked(options.n, options.at_once, rounds, peer, options.show)
    if options.workload != ALL and peer and peer.name not in WORKLOADS[options.workload].peers:
        parser.error(f"{peer.name} does not do the work of {options.workload}")
    for workload in WORKLOADS.values() if options.workload == ALL else [WORKLOADS[options.workload]]:
        if peer is None or peer.name in workload.peers:
            sys.stdout.write(_play(workload, asked) + "\n")
            sys.stdout.flush()
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {number}")
    return number


def _play(workload: Workload, asked: Asked) -> str:
    """Measures a workload in rounds, ours first in each; the medians as a line."""
    engines = [engine for engine in (OURS, asked.peer) if engine is not None]
    measured: dict[str, list[Figures]] = {engine.name: [] for engine in engines}
    for engine in engines:
        engine.install()
    for _ in range(asked.rounds):
        for engine in engines:
            measured[engine.name].append(workload.measure(workload.load(asked.n, asked.at_once, engine)))
    ours = medians(measured[OURS.name])
    if asked.peer is None:
        return asked.show(workload.name, ours, None)
    theirs = medians(measured[asked.peer.name])
    return asked.show(workload.name, ours, compare(ours, asked.peer.name, theirs, workload.compared_by))


def _end(number: int, frame: object) -> NoReturn:
    """Ends like on Ctrl-C: what was started is stopped."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
