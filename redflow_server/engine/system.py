"""The installation as a whole: who is connected, and starting over."""

from __future__ import annotations

from redflow_server.domain.errors import InvalidInput, ResetNotAllowed
from redflow_server.domain.workers import Worker
from redflow_server.store.admin import Admin
from redflow_server.store.store import Store


class System:
    """What operators ask about."""

    def __init__(self, store: Store, admin: Admin, prefix: str, allows_reset: bool) -> None:
        self._store = store
        self._admin = admin
        self._prefix = prefix
        self._allows_reset = allows_reset

    async def workers(self) -> tuple[Worker, ...]:
        """The workers connected to any gateway."""
        return await self._store.read_sessions()

    async def reset(self, prefix: str) -> int:
        """Deletes everything under the prefix; how many keys. Raises ResetNotAllowed, InvalidInput."""
        if not self._allows_reset:
            raise ResetNotAllowed
        if prefix != self._prefix:
            raise InvalidInput("prefix", "must equal the gateway's prefix", prefix)
        return await self._admin.reset()
