"""Completion tokens, as whoever was given one completes it."""

from __future__ import annotations

import asyncio

from redflow_server.domain.errors import PayloadTooLarge
from redflow_server.domain.names import Limits, check_payload
from redflow_server.domain.tokens import Completion
from redflow_server.store.codec import encode_failure
from redflow_server.store.store import Store


class Tokens:
    """Waits that somebody outside ends."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    def complete(self, completion: Completion) -> asyncio.Future[None]:
        """Ends the wait for a token, once; a repeat of the same is taken.

        Raises TokenNotFound, NotWaiting, InvalidInput, PayloadTooLarge.
        """
        limit = self._limits.max_payload_bytes
        if completion.output is not None:
            check_payload("output", completion.output, limit)
        if completion.failure is not None and (size := len(encode_failure(completion.failure))) > limit:
            raise PayloadTooLarge("failure", limit, size)
        return self._store.complete_token(completion)
