"""A process that has an embedded store: `python -m tests.embedded.holder DIR`. It says which, and waits to be ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from redflow_server.embedded import EmbeddedStore, EmbeddedStoreError


def main() -> None:
    """Starts a store on the directory, or says why there is none."""
    store = EmbeddedStore(Path(sys.argv[1]))
    try:
        store.start()
    except EmbeddedStoreError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps({"pid": store.pid, "socket": str(store.socket_path)}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    store.stop()


if __name__ == "__main__":
    main()
