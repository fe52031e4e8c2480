"""What it means for a command that a Redis could not be used: it is away, or it has answered and refuses its user."""

from __future__ import annotations

import re
from typing import Final

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.domain.errors import StoreUnavailable

# The store has one exception for both; only the words of Redis and Valkey tell them apart.
_RIGHTS: Final = re.compile(
    r"no permissions|invalid username-password pair|authentication required|user executing the script can't run",
    re.IGNORECASE,
)


def redis_fault(error: StoreUnavailable, who: str) -> CommandFailed:
    """The fault of a command that did not get from Redis what `who` needs, such as "a gateway"."""
    if not _RIGHTS.search(str(error)):
        return CommandFailed(str(error).removesuffix("."), ExitCode.UNAVAILABLE)
    said = str(error.__cause__ or error)
    return CommandFailed(f"Redis refuses what {who} needs: {said}", ExitCode.REFUSED)
