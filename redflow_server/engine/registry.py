"""The registry of workflows: who registers what, and what is in force."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from redflow_server.domain.errors import InvalidInput, Refusal, WorkflowNotFound
from redflow_server.domain.names import check_name
from redflow_server.domain.registry import (
    Assertion,
    Registration,
    RegistrationResult,
    RegistrationStatus,
    Workflow,
    WorkflowDefinition,
    check_definition,
)
from redflow_server.domain.schedules import Plan, Schedule
from redflow_server.domain.session import OpenSession
from redflow_server.engine.schedules import Schedules, check_schedule_ids
from redflow_server.store.store import Store

log = logging.getLogger("redflow.gateway")

ASSERTIONS: Final = 200
"""Definitions that one script looks at."""

MESSAGES: Final = {
    RegistrationStatus.SUPERSEDED: "a later build of the same owner is in force; this worker still serves the workflow",
    RegistrationStatus.FOREIGN_OWNER: "another owner holds the name; this worker still serves the workflow",
}


class Registry:
    """Registered workflows."""

    def __init__(self, store: Store, schedules: Schedules) -> None:
        self._store = store
        self._schedules = schedules

    async def register(self, registration: Registration) -> tuple[RegistrationResult, ...]:
        """Registers an owner's set: what is invalid is reported, the rest is in force. Raises InvalidInput for the
        owner or build.
        """
        check_name("owner", registration.owner)
        check_name("build_id", registration.build_id)
        answers: list[RegistrationResult | None] = []
        valid: dict[str, WorkflowDefinition] = {}
        for definition in registration.workflows:
            try:
                check_definition(definition)
                check_schedule_ids(definition)
                if definition.name in valid:
                    raise InvalidInput("workflow.name", "must be unique in a registration", definition.name)
            except Refusal as refusal:
                answers.append(RegistrationResult(definition.name, RegistrationStatus.INVALID, str(refusal)))
            else:
                valid[definition.name] = definition
                answers.append(None)
        plan = await self._schedules.plan(tuple(valid.values()))
        registered = await self._store.register(
            replace(registration, workflows=tuple(valid.values()), schedules=plan.schedules)
        )
        for name in registered.retired:
            log.warning(
                "workflow %r is retired: owner %r no longer has it, and no worker has used it lately",
                name,
                registration.owner,
            )
        results = iter(registered.results)
        return tuple(answer or _explained(next(results), plan) for answer in answers)

    async def register_for(self, opening: OpenSession) -> tuple[RegistrationResult, ...]:
        """Registers what a worker brings; a worker without workflows registers nothing."""
        if not opening.workflows:
            return ()
        return await self.register(Registration(opening.owner, opening.build_id, opening.workflows))

    async def assert_for(self, openings: list[OpenSession]) -> None:
        """Keeps in force what live workers have registered; registers again what is missing.

        Raises StoreUnavailable, StoreFull, when all that can be done is done.
        """
        asserted = {
            Assertion(opening.owner, opening.build_id, definition.name, definition.digest): opening
            for opening in openings
            for definition in opening.workflows
        }
        assertions = list(asserted)
        needed: set[str] = set()
        for at in range(0, len(assertions), ASSERTIONS):
            part = assertions[at : at + ASSERTIONS]
            answers = await self._store.assert_registry(part)
            needed |= {asserted[one].instance_id for one, is_needed in zip(part, answers, strict=True) if is_needed}
        refused: Refusal | None = None
        for opening in openings:
            if opening.instance_id in needed:
                try:
                    await self.register_for(opening)
                except Refusal as refusal:
                    # One set that has no room keeps no other from being registered.
                    refused = refusal
        if refused is not None:
            raise refused

    async def get(self, name: str) -> Workflow:
        """One workflow. Raises WorkflowNotFound."""
        check_name("name", name)
        (workflow,) = await self._store.read_workflows([name])
        if workflow is None:
            raise WorkflowNotFound(f"workflow {name!r} is not registered", workflow=name)
        return workflow

    async def list(self, limit: int, after: str) -> tuple[tuple[Workflow, ...], str]:
        """A page of workflows by name, and the name after which the next begins; "" on the last."""
        names = [name for name in await self._store.list_workflows() if name > after]
        page = names[:limit]
        workflows = await self._store.read_workflows(page) if page else ()
        found = tuple(workflow for workflow in workflows if workflow is not None)
        return found, page[-1] if len(names) > limit else ""

    async def schedules(self, workflow: str, limit: int, after: str) -> tuple[tuple[Schedule, ...], str]:
        """The cron schedules of one workflow, or of a page of workflows, and the name after which the next begins."""
        if workflow:
            return await self._schedules.list([check_name("workflow", workflow)]), ""
        names = [name for name in await self._store.list_workflows() if name > after]
        page = names[:limit]
        return await self._schedules.list(page), page[-1] if len(names) > limit else ""


def _explained(result: RegistrationResult, plan: Plan) -> RegistrationResult:
    problems = [problem.message for problem in plan.problems if problem.workflow == result.name]
    if problems and result.status is RegistrationStatus.REGISTERED:
        return replace(result, message=f"it is in force without these schedules: {'; '.join(problems)}")
    return replace(result, message=MESSAGES.get(result.status, ""))
