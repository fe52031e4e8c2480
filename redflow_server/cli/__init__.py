"""The command `redflow`: arguments and environment in; tables, JSON and exit codes out.

`program.py` lists the nouns; each is a module of its name, imported only when it is called. `exit_codes.py` says what
the exit codes mean. The nouns of clients, `run`, `event`, `workflow`, `schedule`, `queue` and
`worker`, use the SDK alone and work without the extra `server`.
"""

from __future__ import annotations

from redflow_server.cli.program import main

__all__ = ["main"]
