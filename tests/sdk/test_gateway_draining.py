"""A gateway that goes away says so: the worker opens its next session first, and loses nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from redflow_sdk import Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import milliseconds, ok, payload, session_error, value_of, withheld
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import states_of

DRAINING = pb.SessionResponse(gateway_draining=pb.GatewayDraining(grace=milliseconds(10_000)))


@workflow(name="steps")
async def steps(ctx: Context, count: int) -> int:
    for n in range(count):
        await ctx.step.run(f"s{n}", asyncio.sleep, 0.01)
    return count


async def test_the_next_session_is_open_before_the_old_one_is_closed(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, steps)
    token = scripted.assign("steps", payload(40))
    await scripted.log.report(token, "s1")
    old = scripted.session
    old.send(DRAINING)

    second = await scripted.log.open(2)
    assert states_of(second.message.held_leases) == {token: "RUNNING"}
    await eventually(scripted.log.closes)
    [close] = scripted.log.closes()
    assert close.session == 1 and close.at > second.at
    await eventually(old.has_ended.is_set)
    assert value_of((await scripted.log.result(token)).output) == 40
    names = [report.message.step_name for report in scripted.log.reports(token)]
    assert sorted(set(names)) == sorted(f"s{n}" for n in range(40))
    assert len(scripted.sessions) == 2


async def test_the_old_session_is_kept_and_beaten_until_the_new_one_has_answered_for_every_lease(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    released = asyncio.Event()

    @workflow(name="waits")
    async def waits(ctx: Context) -> None:
        await released.wait()

    await connect(scripted, waits)
    token = scripted.assign("waits")
    await scripted.log.ack(token)
    old = scripted.session
    old.script = scripted.script
    scripted.script = replace(scripted.script, beat=lambda beat: None)
    old.send(DRAINING)
    await eventually(lambda: len(scripted.log.beats(2)) >= 2)
    assert scripted.log.closes() == []
    assert scripted.log.beats()[-1].at - scripted.log.beats(1)[-1].at < 1
    assert states_of(scripted.log.beats(2)[0].message.leases) == {token: "RUNNING"}

    scripted.behave()
    await eventually(scripted.log.closes)
    assert scripted.log.closes()[0].session == 1
    released.set()
    await scripted.log.result(token)


async def test_items_that_the_old_gateway_has_not_answered_go_to_the_newest_session(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, steps)
    tokens = [scripted.assign("steps", payload(3)) for _ in range(5)]
    old = scripted.session
    old.script = replace(scripted.script, item=withheld)
    for token in tokens:
        await scripted.log.report(token, "s0")
    old.send(DRAINING)
    for token in tokens:
        assert value_of((await scripted.log.result(token)).output) == 3
        first, again = scripted.log.reports(token, "s0")
        assert (first.session, again.session) == (1, 2) and first.message == again.message
        assert {item.session for item in scripted.log.items(token)} == {1, 2}


async def test_an_answer_that_the_old_gateway_gives_late_counts(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, steps)
    old = scripted.session
    old.script = replace(scripted.script, item=withheld)
    scripted.script = replace(scripted.script, item=withheld, beat=lambda beat: None)
    token = scripted.assign("steps", payload(1))
    report = await scripted.log.report(token, "s0")
    old.send(DRAINING)
    await scripted.log.open(2)
    old.send(pb.SessionResponse(item_results=[ok(report)]))
    scripted.script = replace(scripted.script, item=ok)
    assert value_of((await scripted.log.result(token)).output) == 1


async def test_while_no_other_gateway_takes_the_worker_the_old_session_carries_everything(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, steps)
    answer = scripted.script.open
    scripted.script.open = lambda opening: session_error("GATEWAY_DRAINING", permanent=False)
    token = scripted.assign("steps", payload(30))
    old = scripted.session
    old.send(DRAINING)
    await eventually(lambda: scripted.log.results(token) or scripted.log.closes())
    assert scripted.log.closes() == [], "the only open session is closed"
    assert value_of((await scripted.log.result(token)).output) == 30
    assert {item.session for item in scripted.log.items(token)} == {1}
    assert not old.has_ended.is_set()
    scripted.script.open = answer
    await eventually(scripted.log.closes, within=6)
    assert scripted.log.closes()[0].session == 1


async def test_a_draining_gateway_that_is_gone_before_the_next_session_is_open_loses_nothing(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, steps)
    answer = scripted.script.open
    scripted.script.open = lambda opening: session_error("STORE_UNAVAILABLE", permanent=False)
    token = scripted.assign("steps", payload(30))
    old = scripted.session
    old.script = replace(scripted.script, item=withheld)
    await scripted.log.report(token, "s0")
    old.send(DRAINING)
    await scripted.log.open(2)
    old.end()
    await eventually(old.has_ended.is_set)
    scripted.script.open = answer
    assert value_of((await scripted.log.result(token)).output) == 30
    assert len(scripted.log.reports(token, "s0")) == 2


async def test_the_worker_waits_as_long_as_the_gateway_asks_before_it_goes_elsewhere(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, steps)
    await scripted.log.beat()
    sent_at = scripted.log.requests[-1].at
    delay = milliseconds(600)
    scripted.send(gateway_draining=pb.GatewayDraining(grace=milliseconds(10_000), reconnect_delay=delay))
    second = await scripted.log.open(2)
    assert second.at - sent_at >= 0.6
    assert scripted.log.closes() == [] or scripted.log.closes()[0].at > second.at


async def test_a_worker_that_is_stopped_while_it_moves_does_not_linger(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    worker = await connect(scripted, steps)
    scripted.send(gateway_draining=DRAINING.gateway_draining)
    await scripted.log.open(2)
    stopping_at = time.monotonic()
    await worker.stop()
    assert time.monotonic() - stopping_at < 2.5
    assert {close.session for close in scripted.log.closes()} == {1, 2}


async def test_a_worker_that_moves_dials_the_next_gateway_as_soon_as_ever_however_often_it_was_refused_before(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, steps)
    answer = scripted.script.open
    for round_number in range(3):
        scripted.script.open = lambda opening: session_error("GATEWAY_DRAINING", permanent=False)
        before = len(scripted.log.opens())
        scripted.session.send(DRAINING)
        await eventually(lambda before=before: len(scripted.log.opens()) >= before + 3, within=8)
        scripted.script.open = answer
        opened = len(scripted.log.closes())
        await eventually(lambda opened=opened: len(scripted.log.closes()) > opened, within=6)
        first, second = [it.at for it in scripted.log.opens()[before : before + 2]]
        assert second - first < 0.6, f"in round {round_number}"
