"""A worker that is told to let no handler go on in place: what could is handed back, and begins again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redflow_sdk import Workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import answer, child_succeeded, ok, resolved, suspended, value_of, withdrawn
from tests.sdk.parked_runs import quick, takes_the_next_run, waiting
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

KINDS = pytest.mark.parametrize("name", ["waits-async", "waits-def"])


@pytest.fixture(autouse=True)
def always_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDFLOW_WAITING", "replay")


@pytest.fixture
def noted() -> list[str]:
    return []


@pytest.fixture
def workflows(noted: list[str]) -> list[Workflow[object, object]]:
    return [*waiting(noted), quick]


def over_at_once(to_release: Callable[[Item], pb.ItemResult]) -> Callable[[Item], pb.ItemResult]:
    """The wait is over when it is asked about; what is handed back is answered like this."""

    def answers(item: Item) -> pb.ItemResult:
        if isinstance(item, pb.Suspension):
            return resolved(item, child_succeeded("child", 7))
        return to_release(item) if isinstance(item, pb.LeaseRelease) else ok(item)

    return answers


@KINDS
async def test_a_run_whose_wait_is_over_at_once_is_handed_back_at_no_cost_and_its_handler_ends(
    name: str,
    scripted: ScriptedGateway,
    connect: StartWorker,
    workflows: list[Workflow[object, object]],
    noted: list[str],
) -> None:
    await connect(scripted, *workflows, concurrency=1)
    scripted.script.item = over_at_once(ok)
    token = scripted.assign(name)

    released = await scripted.log.release(token)

    assert (released.reason, released.steps_recorded) == (pb.RELEASE_REASON_NOT_STARTED, 0)
    await eventually(lambda: len(noted) == 2)
    assert noted[0] == "begun" and noted[1] in ("CancelledError", "RunSuspended")
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension", "LeaseRelease"], "the end of the handler is not told"


@KINDS
async def test_it_begins_again_with_the_outcome_on_record_and_goes_on(
    name: str,
    scripted: ScriptedGateway,
    connect: StartWorker,
    workflows: list[Workflow[object, object]],
    noted: list[str],
) -> None:
    await connect(scripted, *workflows)
    token = scripted.assign(name, steps=[child_succeeded("child", 7)])

    assert value_of((await scripted.log.result(token)).output) == 7
    assert noted == ["begun", "went on"]
    assert not scripted.log.suspensions(token)


async def test_nothing_is_parked_and_what_is_not_over_is_set_aside_as_ever(
    scripted: ScriptedGateway, connect: StartWorker, workflows: list[Workflow[object, object]]
) -> None:
    await connect(scripted, *workflows)
    scripted.script.item = lambda item: suspended(item) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("waits-async")

    assert not (await scripted.log.suspension(token)).park
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension"]


@pytest.mark.parametrize("status", [pb.ITEM_STATUS_CANCELED, pb.ITEM_STATUS_DUPLICATE, pb.ITEM_STATUS_LEASE_LOST])
async def test_a_run_that_ends_or_is_lost_while_it_is_handed_back_ends_its_handler_too(
    status: pb.ItemStatus.ValueType,
    scripted: ScriptedGateway,
    connect: StartWorker,
    workflows: list[Workflow[object, object]],
    noted: list[str],
) -> None:
    await connect(scripted, *workflows)
    scripted.script.item = over_at_once(lambda item: answer(item, status))
    token = scripted.assign("waits-async")

    await scripted.log.release(token)

    await eventually(lambda: noted == ["begun", "CancelledError"])
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension", "LeaseRelease"]


async def test_a_wait_that_was_withdrawn_is_refused_here_for_a_replay_would_ask_the_same_again(
    scripted: ScriptedGateway, connect: StartWorker, workflows: list[Workflow[object, object]]
) -> None:
    await connect(scripted, *workflows)
    scripted.script.item = lambda item: (
        resolved(item, withdrawn("child", "child")) if isinstance(item, pb.Suspension) else ok(item)
    )
    token = scripted.assign("waits-async")
    failure = (await scripted.log.result(token)).failure
    assert "has lost a race before" in failure.message
    assert scripted.log.said(token) == ["Suspension", "RunResult"]
