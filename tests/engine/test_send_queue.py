"""What a gateway has to say to a worker: bounded messages, control first, the end last, and nothing lost."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest

from redflow_server.domain.leases import ClaimedRun, Lane, Resolution, Stop, StopReason
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import Step
from redflow_server.domain.session import (
    Draining,
    GatewayMessage,
    HeartbeatReply,
    ItemAnswer,
    ItemStatus,
    SessionEnd,
    SessionOpened,
)
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.engine.send_queue import MESSAGE_BYTES, MESSAGE_ITEMS, SendQueue

LARGEST_PAYLOAD: Final = 1024 * 1024
LARGEST_MESSAGE: Final = 4 * 1024 * 1024
"""What a worker takes that does not say how much it takes."""


def a_step(name: str = "a", size_bytes: int = 0) -> Step:
    output = Payload(b"x" * size_bytes)
    return Step(name, 1, StepKind.FUNCTION, StepStatus.SUCCEEDED, 1, output=output, size_bytes=size_bytes)


def a_run(number: int, input_bytes: int = 2, *steps: Step) -> ClaimedRun:
    return ClaimedRun(f"run_{number}", f"token-{number}", Lane("q", "w"), 1, 1, 1, Payload(b"x" * input_bytes), steps)


def an_answer(number: int, *conflicting: Step) -> ItemAnswer:
    return ItemAnswer(number, ItemStatus.CONFLICT if conflicting else ItemStatus.OK, conflicting=conflicting)


def a_stop(number: int) -> Stop:
    return Stop(f"token-{number}", StopReason.USER)


def a_resolution(number: int, size_bytes: int = 0) -> Resolution:
    return Resolution(f"token-{number}", "a", a_step("a", size_bytes))


def bytes_of(message: GatewayMessage) -> int:
    """The payload bytes that a message carries."""
    steps = [step for run in message.assignments for step in run.steps or ()]
    steps += [step for answer in message.answers for step in (*answer.conflicting, *answer.resolutions)]
    steps += [resolution.step for resolution in message.resolutions if resolution.step]
    inputs = sum(len(run.input.data) for run in message.assignments if run.input)
    return inputs + sum(len(step.output.data) for step in steps if step.output)


async def take_all(send_queue: SendQueue) -> list[GatewayMessage]:
    """Every message that is ready, as a stream takes them that never has to wait."""
    messages: list[GatewayMessage] = []
    while True:
        taking = asyncio.create_task(send_queue.take())
        await asyncio.sleep(0)
        if not taking.done():
            taking.cancel()
            await asyncio.wait([taking])
            return messages
        messages.append(taking.result())
        if messages[-1].end is not None:
            return messages


async def test_an_empty_outbox_waits_until_there_is_something_to_say() -> None:
    send_queue = SendQueue()
    taking = asyncio.create_task(send_queue.take())
    await asyncio.sleep(0)
    assert not taking.done()

    send_queue.answer(an_answer(1))

    message = await asyncio.wait_for(taking, 1)
    assert message.answers == (an_answer(1),)
    assert await take_all(send_queue) == []


async def test_an_answer_for_which_nobody_waits_goes_with_what_follows() -> None:
    send_queue = SendQueue()
    taking = asyncio.create_task(send_queue.take())
    send_queue.answer_in_time(an_answer(1))
    send_queue.answer_in_time(an_answer(2))
    await asyncio.sleep(0)
    assert not taking.done()

    send_queue.assign(a_run(1))

    message = await asyncio.wait_for(taking, 1)
    assert (message.answers, message.assignments) == ((an_answer(1), an_answer(2)), (a_run(1),))
    assert await take_all(send_queue) == []


async def test_when_nothing_follows_it_goes_by_itself_in_time() -> None:
    send_queue = SendQueue()
    for number in range(2):
        send_queue.answer_in_time(an_answer(number))

        message = await asyncio.wait_for(send_queue.take(), 1)

        assert message.answers == (an_answer(number),)


async def test_everything_that_is_queued_leaves_in_one_message() -> None:
    send_queue = SendQueue()
    opened, draining = SessionOpened("s", 1, (), ()), Draining(1000, 0)
    send_queue.open(opened)
    send_queue.answer(an_answer(1))
    send_queue.stop(a_stop(1))
    send_queue.resolve(a_resolution(3))
    send_queue.assign(a_run(2))
    send_queue.reply(HeartbeatReply(7, (), ()))
    send_queue.drain(draining)

    [message] = await take_all(send_queue)

    assert message == GatewayMessage(
        opened=opened,
        heartbeat_reply=HeartbeatReply(7, (), ()),
        answers=(an_answer(1),),
        stops=(a_stop(1),),
        resolutions=(a_resolution(3),),
        assignments=(a_run(2),),
        draining=draining,
    )
    assert send_queue.queued == 0


# ---- bounds ----


async def test_a_message_has_at_most_so_many_items_of_each_kind_and_they_keep_their_order() -> None:
    count = 2 * MESSAGE_ITEMS + 10
    send_queue = SendQueue()
    for number in range(count):
        send_queue.answer(an_answer(number))
        send_queue.stop(a_stop(number))
        send_queue.resolve(a_resolution(number))
        send_queue.assign(a_run(number))
    assert send_queue.queued == 4 * count

    messages = await take_all(send_queue)

    for kind in ("answers", "stops", "resolutions", "assignments"):
        assert max(len(getattr(message, kind)) for message in messages) == MESSAGE_ITEMS
    assert [answer for message in messages for answer in message.answers] == list(map(an_answer, range(count)))
    assert [stop for message in messages for stop in message.stops] == list(map(a_stop, range(count)))
    resolutions = [resolution for message in messages for resolution in message.resolutions]
    assert resolutions == list(map(a_resolution, range(count)))
    assert [run for message in messages for run in message.assignments] == list(map(a_run, range(count)))


@pytest.mark.parametrize("where", ["input", "steps", "both"])
async def test_a_message_has_at_most_a_mebibyte_of_assignments(where: str) -> None:
    send_queue = SendQueue()
    size = 200_000
    inputs, steps = (0 if where == "steps" else size), (0 if where == "input" else size)
    for number in range(20):
        send_queue.assign(a_run(number, inputs, a_step("a", steps // 2), a_step("b", steps // 2)))

    messages = await take_all(send_queue)

    assert all(bytes_of(message) <= MESSAGE_BYTES for message in messages)
    assert len(messages) == (10 if where == "both" else 4)
    assert [run.run_id for message in messages for run in message.assignments] == [f"run_{n}" for n in range(20)]


async def test_an_assignment_larger_than_that_goes_alone() -> None:
    send_queue = SendQueue()
    for number, size in enumerate((10, 2 * LARGEST_PAYLOAD, 10)):
        send_queue.assign(a_run(number, size))
    assert [len(message.assignments) for message in await take_all(send_queue)] == [1, 1, 1]


async def test_answers_that_carry_values_keep_to_what_a_worker_takes_in_one_message() -> None:
    send_queue = SendQueue()
    for number in range(10):
        send_queue.answer(an_answer(number, a_step("a", LARGEST_PAYLOAD)))

    messages = await take_all(send_queue)

    assert [answer.request_id for message in messages for answer in message.answers] == list(range(10))
    assert max(bytes_of(message) for message in messages) < LARGEST_MESSAGE


@pytest.mark.parametrize("beside", [0, LARGEST_PAYLOAD // 2], ids=["alone", "beside an answer"])
async def test_outcomes_of_waits_keep_to_what_a_worker_takes_in_one_message(beside: int) -> None:
    send_queue = SendQueue()
    send_queue.answer(an_answer(1, a_step("a", beside)))
    for number in range(40):
        send_queue.resolve(a_resolution(number, 64 * 1024))
    send_queue.assign(a_run(1, LARGEST_PAYLOAD // 2))

    messages = await take_all(send_queue)

    assert max(bytes_of(message) for message in messages) <= MESSAGE_BYTES
    assert [resolution.lease_token for message in messages for resolution in message.resolutions] == [
        f"token-{number}" for number in range(40)
    ]
    assert [run.run_id for message in messages for run in message.assignments] == ["run_1"]


# ---- order ----


async def test_a_run_or_an_outcome_never_overtakes_the_answer_that_has_made_room_for_it() -> None:
    """A worker deals with the answers of a message first: one that came later would find all of its slots taken."""
    send_queue = SendQueue()
    for number in range(MESSAGE_ITEMS + 1):
        send_queue.answer(an_answer(number))
    send_queue.resolve(a_resolution(1))
    send_queue.assign(a_run(1))

    first, second = await take_all(send_queue)

    assert (len(first.answers), first.resolutions, first.assignments) == (MESSAGE_ITEMS, (), ())
    assert (len(second.answers), second.resolutions, second.assignments) == (1, (a_resolution(1),), (a_run(1),))


async def test_control_does_not_wait_behind_assignments() -> None:
    send_queue = SendQueue()
    for number in range(10):
        send_queue.assign(a_run(number, LARGEST_PAYLOAD))
    send_queue.answer(an_answer(1))
    send_queue.stop(a_stop(99))
    send_queue.reply(HeartbeatReply(1, (), ()))

    first = await send_queue.take()

    assert (first.answers, first.stops) == ((an_answer(1),), (a_stop(99),))
    assert first.heartbeat_reply is not None
    send_queue.answer(an_answer(2))
    second = await send_queue.take()
    assert second.answers == (an_answer(2),)
    assert (second.heartbeat_reply, len(second.assignments)) == (None, 1)


async def test_only_the_newest_answer_to_a_heartbeat_counts() -> None:
    send_queue = SendQueue()
    for sequence in (1, 2, 3):
        send_queue.reply(HeartbeatReply(sequence, (), ()))
    [message] = await take_all(send_queue)
    assert message.heartbeat_reply == HeartbeatReply(3, (), ())


async def test_a_worker_is_told_that_nothing_follows_with_the_last_assignment_and_once() -> None:
    send_queue = SendQueue()
    for number in range(MESSAGE_ITEMS + 1):
        send_queue.assign(a_run(number))
    send_queue.drained()

    messages = await take_all(send_queue)

    assert [(len(message.assignments), message.is_drained) for message in messages] == [
        (MESSAGE_ITEMS, False),
        (1, True),
    ]
    send_queue.answer(an_answer(1))
    assert [message.is_drained for message in await take_all(send_queue)] == [False]
    send_queue.drained()
    assert [message.is_drained for message in await take_all(send_queue)] == [True]


async def test_the_end_comes_when_everything_else_has_been_said() -> None:
    send_queue = SendQueue()
    for number in range(MESSAGE_ITEMS + 1):
        send_queue.answer(an_answer(number))
    send_queue.assign(a_run(1))
    send_queue.drained()
    end = SessionEnd("WHY", "words")
    send_queue.end(end)

    messages = await take_all(send_queue)

    assert [message.end for message in messages] == [None, end]
    assert sum(len(message.answers) for message in messages) == MESSAGE_ITEMS + 1
    assert any(message.is_drained for message in messages)


async def test_the_first_reason_to_end_stays_and_without_one_a_session_ends_as_agreed() -> None:
    send_queue = SendQueue()
    send_queue.end(SessionEnd("FIRST", ""))
    send_queue.end(SessionEnd("SECOND", ""))
    send_queue.end()
    [message] = await take_all(send_queue)
    assert message.end == SessionEnd("FIRST", "")

    agreed = SendQueue()
    agreed.end()
    [message] = await take_all(agreed)
    assert message.end == SessionEnd("", "")


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_is_said_in_whatever_order_arrives_once_and_in_its_order(seed: int) -> None:
    chance = random.Random(seed)
    send_queue = SendQueue()
    said: dict[str, list[object]] = {"answers": [], "stops": [], "resolutions": [], "assignments": []}
    heard: dict[str, list[object]] = {name: [] for name in said}
    messages: list[GatewayMessage] = []

    def say(number: int) -> None:
        match chance.choice(tuple(said)):
            case "answers":
                said["answers"].append(an_answer(number))
                send_queue.answer(an_answer(number))
            case "stops":
                said["stops"].append(a_stop(number))
                send_queue.stop(a_stop(number))
            case "resolutions":
                said["resolutions"].append(a_resolution(number, 50_000))
                send_queue.resolve(a_resolution(number, 50_000))
            case _:
                run = a_run(number, chance.choice((0, 1000, 300_000)))
                said["assignments"].append(run)
                send_queue.assign(run)

    for number in range(600):
        say(number)
        if chance.random() < 0.05:
            messages.append(await send_queue.take())
    send_queue.drained()
    send_queue.end()
    messages += await take_all(send_queue)

    for message in messages:
        for name, parts in heard.items():
            parts += getattr(message, name)
        assert len(message.assignments) <= MESSAGE_ITEMS
        assert bytes_of(message) <= MESSAGE_BYTES
    assert heard == said
    assert [message.end is not None for message in messages] == [False] * (len(messages) - 1) + [True]
    drained_at = [number for number, message in enumerate(messages) if message.is_drained]
    assert len(drained_at) == 1
    assert not any(message.assignments for message in messages[drained_at[0] + 1 :])
