"""How a command says that it cannot do what it was asked for."""

from __future__ import annotations

from redflow_server.cli.exit_codes import ExitCode


class CommandFailed(Exception):
    """Ends the command: its message is the one line on stderr, `code` the exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(message)
        self.code = code
