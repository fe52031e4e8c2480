"""What a worker serves under each load, and beside it."""

from __future__ import annotations

from tests.chaos import beside, wait_workflows, workflows

starts = [*workflows.app, *beside.app]
waits = [*wait_workflows.app, *beside.app]
