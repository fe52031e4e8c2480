"""`python -m benchmarks.peers.fill ENGINE N`: queues N no-ops in an engine."""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    import_module(f"benchmarks.peers.{sys.argv[1]}_app").fill(int(sys.argv[2]))
