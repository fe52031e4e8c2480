"""What every call of a script needs: the pipeline that carries it, and the clock."""

from __future__ import annotations

from redflow_server.store.pipeline import Pipeline
from redflow_server.store.wire import Argument


class Scripted:
    """A set of scripts."""

    def __init__(self, pipeline: Pipeline, max_losses: int = 3, now_ms: int | None = None) -> None:
        self._pipeline = pipeline
        self._max_losses = max_losses
        self.now_ms = now_ms

    @property
    def _now(self) -> Argument:
        return "" if self.now_ms is None else self.now_ms
