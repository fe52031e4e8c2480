"""What it means for a command that a Redis could not be used: it is away, or it has answered and refuses its user."""

from __future__ import annotations

import re
from typing import Final

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.domain.errors import StoreUnavailable

# The store has one exception for all of it; only the words of Redis and Valkey tell them apart.
_RIGHTS: Final = re.compile(r"no permissions|user executing the script can't run", re.IGNORECASE)
_LOGIN: Final = re.compile(
    r"invalid username-password pair|authentication required|without any password", re.IGNORECASE
)
_DATABASE: Final = re.compile(r"DB index is out of range", re.IGNORECASE)


def redis_fault(error: StoreUnavailable, who: str, *, advice: str = "") -> CommandFailed:
    """The fault of a command that did not get from Redis what `who` needs, such as "a gateway". `advice` is what may be
    done where its user lacks rights.
    """
    said = str(error.__cause__ or error).removesuffix(".")
    if _LOGIN.search(said):
        return CommandFailed(f"Redis refuses user and password: {said}", ExitCode.REFUSED)
    if _DATABASE.search(said):
        return CommandFailed(f"Redis does not have this database: {said}", ExitCode.REFUSED)
    if _RIGHTS.search(said):
        return CommandFailed(f"Redis refuses what {who} needs: {said}{advice}", ExitCode.REFUSED)
    return CommandFailed(str(error).removesuffix("."), ExitCode.UNAVAILABLE)
