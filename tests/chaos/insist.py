"""Calls that may be repeated, made again until a gateway has taken them: what programs do that have to get through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from redflow_sdk import RefusedError, UnavailableError

T = TypeVar("T")

PASSES: Final = ("STORE_FULL", "TOO_MANY_WAITERS")
"""Why a call is refused that may be taken a little later."""


async def insisted(call: Callable[[], Awaitable[T]]) -> T:
    """What a call gives, made again while there is no gateway to answer it, or no room for it."""
    while True:
        try:
            return await call()
        except UnavailableError:
            pass
        except RefusedError as refused:
            if refused.reason not in PASSES:
                raise
        await asyncio.sleep(0.1)
