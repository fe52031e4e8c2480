"""What Redis refuses: what an error reply means for the call, and what is said of it in the log, once.

A refusal for now is one that ends without us: whoever asked may ask again. Redis 6.2 wraps the replies that a script
meets in a sentence of its own, so the code is looked for behind that too.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import hiredis

from redflow_server.domain.errors import Refusal, StoreFull, StoreUnavailable
from redflow_server.store.wire import Reply

log = logging.getLogger("redflow.store")

FULL: Final = "OOM"
_FOR_NOW: Final = frozenset(
    {
        *("LOADING", "BUSY", "MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN", "UNBLOCKED"),
        *("NOAUTH", "WRONGPASS", "NOPERM", "NOSCRIPT"),
    }
)
ENDS_CONNECTION: Final = frozenset({"READONLY", "NOREPLICAS", "NOAUTH"})
"""Another server may be the primary by now, or the connection is not logged in any more: the next one may do."""
_CODE: Final = re.compile(r"(?:.*?@user_script: ?\d+: -)?([A-Z]+) ")
# What a script of ours meets has no code of its own, whichever the version.
_RIGHTS: Final = re.compile(r"The user executing the script can't run|ACL failure in script")
TRY_WRITE: Final = "try_write"
"""The script that is answered only where a start would be, but for rights: these are a script's own."""
RIGHTS_LAST_S: Final = 15.0
"""A right that no script has lacked for so long may be there again."""


def code_of(message: str) -> str:
    """The code of an error reply, such as READONLY; NOPERM where a user lacks a right inside of a script."""
    if _RIGHTS.search(message):
        return "NOPERM"
    found = _CODE.match(message)
    return found[1] if found else ""


def refusal_of(message: str) -> Refusal | None:
    """What a caller is told of an error reply; None when it is a fault."""
    code = code_of(message)
    if code == FULL:
        return StoreFull()
    return StoreUnavailable(f"Redis refuses for now: {message}") if code in _FOR_NOW else None


@dataclass(frozen=True, slots=True)
class _Met:
    """A refusal: its code, and when it came last."""

    code: str
    at_s: float

    def ends_with_writes(self) -> bool:
        """Whether it is over once Redis writes."""
        return self.code != "NOPERM" or time.monotonic() - self.at_s >= RIGHTS_LAST_S


class Refusals:
    """Which scripts Redis refuses at present. It is over for a script when that is answered again, or TRY_WRITE is."""

    def __init__(self) -> None:
        self._met: dict[str, _Met] = {}

    def __bool__(self) -> bool:
        return bool(self._met)

    @property
    def keep_from_work(self) -> bool:
        """Whether something but a start is refused."""
        return any(met.code != FULL for met in self._met.values())

    def met(self, script: str, message: str) -> None:
        """A call of this script was refused for now."""
        if script == TRY_WRITE:
            # It is asked because others were refused, and says nothing new.
            return
        code = code_of(message)
        if code not in self._codes():
            log.warning("redis %s: %s", "is full" if code == FULL else "refuses calls", message)
        self._met[script] = _Met(code, time.monotonic())

    def answered(self, answers: Iterable[tuple[str, Reply]]) -> None:
        """Scripts, with what was answered to calls of theirs."""
        scripts = {script for script, reply in answers if not _refuses(reply)}
        before, is_written = self._codes(), TRY_WRITE in scripts
        self._met = {
            script: met
            for script, met in self._met.items()
            if not (script in scripts or (is_written and met.ends_with_writes()))
        }
        for code in sorted(before - self._codes()):
            log.warning("redis %s", "has room again" if code == FULL else f"refuses nothing with {code} any more")

    def _codes(self) -> set[str]:
        return {met.code for met in self._met.values()}


def _refuses(reply: Reply) -> bool:
    """Whether it is an error, or that of an item is one."""
    return any(isinstance(item, hiredis.ReplyError) for item in (reply if isinstance(reply, list) else (reply,)))
