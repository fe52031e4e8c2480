"""Which runs a worker is offered: those of its workflows in its queues, lane by lane, the urgent and old first."""

from __future__ import annotations

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker
from tests.rpc.items import a_release, a_result
from tests.rpc.scripted_worker import ScriptedWorker, a_definition


async def offered(worker: ScriptedWorker) -> list[str]:
    """What the worker was offered so far, as `queue/workflow`, in order of the name."""
    await worker.quiet()
    return sorted(f"{one.queue}/{one.workflow}" for one in worker.assignments)


async def start_everywhere(calls: Calls, queues: tuple[str, ...], workflows: tuple[str, ...]) -> None:
    for queue in queues:
        for workflow in workflows:
            await calls.start(workflow, queue)


async def test_a_worker_serves_its_workflows_in_the_queues_of_its_registrations(
    calls: Calls, open_worker: OpenWorker
) -> None:
    """The queues of a session times its workflows: a run may be sent to any of them."""
    await start_everywhere(calls, ("q1", "q2", "q3"), ("a", "b", "c"))

    worker = await open_worker(a_definition("a", "q1"), a_definition("b", "q2"), slot_limit=100)

    assert await offered(worker) == ["q1/a", "q1/b", "q2/a", "q2/b"]


async def test_queues_that_a_worker_names_stand_instead_of_those_of_its_registrations(
    calls: Calls, open_worker: OpenWorker
) -> None:
    await start_everywhere(calls, ("q1", "q2", "q3"), ("a", "b", "c"))

    worker = await open_worker(
        a_definition("a", "q1"), a_definition("b", "q1"), queues=["q2", "q3", "q2"], slot_limit=100
    )

    assert await offered(worker) == ["q2/a", "q2/b", "q3/a", "q3/b"]


async def test_two_workers_share_a_queue_and_each_gets_only_what_it_has_registered(
    calls: Calls, open_worker: OpenWorker
) -> None:
    python = await open_worker("python-flow", owner="python", slot_limit=100)
    go = await open_worker("go-flow", owner="go", slot_limit=100)

    for _ in range(5):
        await start_everywhere(calls, ("q",), ("python-flow", "go-flow", "rust-flow"))

    assert await offered(python) == ["q/python-flow"] * 5
    assert await offered(go) == ["q/go-flow"] * 5


async def test_runs_that_were_left_in_a_former_queue_are_still_served(calls: Calls, open_worker: OpenWorker) -> None:
    before = await open_worker(a_definition("w", "old"), slot_limit=0)
    left = await calls.start("w", "")
    assert (await calls.run(left)).queue == "old"
    await before.say(close=pb.CloseSession())
    await before.end()

    after = await open_worker(a_definition("w", "new"), build_id="build-2", slot_limit=100)
    started = await calls.start("w", "")

    assert (await calls.run(started)).queue == "new"
    assert await offered(after) == ["new/w", "old/w"]


async def test_a_worker_that_names_its_queues_does_not_serve_former_ones(calls: Calls, open_worker: OpenWorker) -> None:
    await open_worker(a_definition("w", "old"), slot_limit=0)
    await calls.start("w", "old")
    await calls.start("w", "gpu")

    worker = await open_worker(a_definition("w", "new"), build_id="build-2", queues=["gpu"], slot_limit=100)

    assert await offered(worker) == ["gpu/w"]


async def test_lanes_have_their_turn_however_long_another_one_is(calls: Calls, open_worker: OpenWorker) -> None:
    await calls.start_many(50, "busy")
    await calls.start_many(5, "quiet-1")
    await calls.start_many(5, "quiet-2")
    worker = await open_worker("busy", "quiet-1", "quiet-2", slot_limit=1)

    names = []
    for _ in range(30):
        assignment = await worker.take()
        names.append(assignment.workflow)
        await worker.do(a_result(assignment))

    assert {name: names.count(name) for name in names} == {"busy": 20, "quiet-1": 5, "quiet-2": 5}
    assert set(names[18:]) == {"busy"}, "the short lanes did not get their turns"


async def test_a_claim_for_many_slots_takes_from_every_lane(calls: Calls, open_worker: OpenWorker) -> None:
    await calls.start_many(50, "busy")
    await calls.start("quiet-1")
    await calls.start("quiet-2")

    worker = await open_worker("busy", "quiet-1", "quiet-2", slot_limit=6)

    assert await offered(worker) == ["q/busy"] * 4 + ["q/quiet-1", "q/quiet-2"]


async def test_within_a_lane_the_higher_priority_goes_first_and_then_the_older_run(
    calls: Calls, open_worker: OpenWorker
) -> None:
    by_priority: dict[int, list[str]] = {}
    for priority in (0, 5, -1000, 1000, 0, 5, -1000, 1000, -1, 1):
        by_priority.setdefault(priority, []).append(await calls.start(priority=priority))
    wanted = [run_id for priority in sorted(by_priority, reverse=True) for run_id in by_priority[priority]]
    worker = await open_worker("w")

    order = []
    for _ in wanted:
        assignment = await worker.take()
        order.append(assignment.run_id)
        await worker.do(a_result(assignment))

    assert order == wanted


async def test_a_run_that_was_handed_back_keeps_its_place(calls: Calls, open_worker: OpenWorker) -> None:
    first, second = await calls.start(), await calls.start()
    worker = await open_worker("w", slot_limit=1)
    assignment = await worker.take()
    assert assignment.run_id == first
    await worker.say(capacity=pb.Capacity(slot_limit=0))
    await worker.do(a_release(assignment))

    await worker.say(capacity=pb.Capacity(slot_limit=2))

    assert [(await worker.take()).run_id for _ in range(2)] == [first, second]
