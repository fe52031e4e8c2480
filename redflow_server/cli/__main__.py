"""`python -m redflow_server.cli` is the command `redflow`."""

from __future__ import annotations

import sys

from redflow_server.cli import main

sys.exit(main())
