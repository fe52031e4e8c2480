"""Shows an order on its way through crashes, with a run of its own for the invoice, a delayed run, a cancel, an event,
a schedule and a failure handler: real processes, and a check of what happened.

Exit code 0 when everything was as promised, 1 when anything was not.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from demo.programs import PlainClient, Program, generate_plain_stubs
from demo.timeline import Journal, Timeline

LEASE_S = 3
PATIENCE_S = 45.0


async def until(what: str, holds: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Waits for something that must happen."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = holds()
        if await found if isinstance(found, Awaitable) else found:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"this did not happen within {PATIENCE_S:.0f} s: {what}")


class Demo:
    """The story."""

    def __init__(self, folder: Path) -> None:
        self.timeline = Timeline()
        self.journal = Journal(folder / "journal", self.timeline)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        target = f"127.0.0.1:{port}"
        log, stubs = folder / "log", folder / "stubs"
        dev = ("dev", "--data-dir", str(folder / "data"), "--port", str(port), "--lease", str(LEASE_S))
        self.gateway = Program(log, *dev)
        worker = ("worker", "run", "demo.workflows:app", "--target", target, "--drain-grace", "5")
        journal = str(self.journal.path)
        self.workers = {
            name: Program(log, *worker, "--name", name, REDFLOW_DEMO_WORKER=name, REDFLOW_DEMO_JOURNAL=journal)
            for name in ("worker A", "worker B")
        }
        self.client = PlainClient(target, stubs)

    async def play(self) -> None:
        """From the first process to the last."""
        following = asyncio.create_task(self.journal.follow())
        try:
            await self._begin()
            order, reminder = await self._start_runs()
            await self._kill_the_worker_that_packs(order)
            await self._cancel_a_run()
            await self._emit_an_event()
            await self._fail_for_good()
            await self._see_the_ends(order, reminder)
            await self._see_the_schedule()
        finally:
            following.cancel()
            await self._end()

    async def _begin(self) -> None:
        say = self.timeline.say
        say("demo", "starts a gateway with an embedded store, two workers, and a client with plainly generated stubs")
        await self.gateway.start()
        for program in self.workers.values():
            await program.start()
        await self.client.start()

    async def _start_runs(self) -> tuple[str, str]:
        say, call = self.timeline.say, self.client.call
        order = {"id": "A-17", "items": ["lamp", "chair"], "cents": 12900}
        started, asked_at = await self._first_start(order)
        say("client", f"starts an order: {started['run_id']}", asked_at)
        say("client", "starts it again with the same key, as after a lost answer")
        again = await call("start", workflow="order", input=order, key="order A-17")
        same = again["run_id"] == started["run_id"] and not again["created"]
        self.timeline.check(same, "a second start with the same key answered the same run")
        say("client", "starts a reminder, to run in 3 s")
        reminder = await call("start", workflow="remind", input="Ada", delay_s=3.0)
        delayed = await call("get", run_id=reminder["run_id"])
        self.timeline.check(delayed["status"] == "scheduled", "the delayed run waited as scheduled")
        self._reminder_due_ms = reminder["due_ms"]
        return started["run_id"], reminder["run_id"]

    async def _first_start(self, order: dict[str, object]) -> tuple[dict[str, str], float]:
        """Its answer, and when it was asked for: the workers register the workflow when they connect, not before."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            asked_at = time.monotonic()
            answer = await self.client.call("start", workflow="order", input=order, key="order A-17")
            if "refused" not in answer:
                return answer, asked_at
            if time.monotonic() > deadline:
                raise TimeoutError(answer["refused"])
            await asyncio.sleep(0.1)

    async def _kill_the_worker_that_packs(self, order: str) -> None:
        await until("the order is being packed", lambda: self.journal.worker_of(order, "pack begins") is not None)
        name = self.journal.worker_of(order, "pack begins")
        assert name is not None
        self.timeline.say("demo", f"kill -9 of {name}, in the middle of packing")
        await self.workers[name].kill()
        self._killed = name

    async def _cancel_a_run(self) -> None:
        say, call = self.timeline.say, self.client.call
        run_id = (await call("start", workflow="inventory"))["run_id"]
        await until("the count begins", lambda: self.journal.count(run_id, "count begins") > 0)
        say("client", "cancels the inventory")
        await call("cancel", run_id=run_id, reason="closing time")
        ended = await call("wait", run_id=run_id, seconds=20)
        say("client", f"inventory is {ended['status']}: {ended['cancel_reason']}")
        self.timeline.check(ended["status"] == "canceled", "the canceled run ended as canceled")
        await until("its handler is interrupted", lambda: self.journal.count(run_id, "count is interrupted") == 1)
        self.timeline.check(True, "its handler was interrupted")

    async def _emit_an_event(self) -> None:
        say, call, check = self.timeline.say, self.client.call, self.timeline.check
        emitted = await call("emit", event="shop.closing", payload={"till": 3}, key="evening")
        say("client", f"emits shop.closing, which starts {len(emitted['run_ids'])} runs")
        again = await call("emit", event="shop.closing", payload={"till": 3}, key="evening")
        check(
            again["run_ids"] == emitted["run_ids"], "the event, emitted again with the same key, started no more runs"
        )
        ended = [await call("wait", run_id=run_id, seconds=20) for run_id in emitted["run_ids"]]
        outputs = sorted(str(run["output"]) for run in ended)
        check(outputs == ["closed till 3", "lights out"], "an event started one run of each of its two subscribers")

    async def _fail_for_good(self) -> None:
        say, call, check = self.timeline.say, self.client.call, self.timeline.check
        run_id = (await call("start", workflow="refund", input=4200))["run_id"]
        ended = await call("wait", run_id=run_id, seconds=20)
        say("client", f"refund is {ended['status']}: {ended['failure']}")
        self.journal.read()
        told = self.journal.count(run_id, "support is told") == 1
        check(ended["status"] == "failed" and told, "the failure handler had run once when the run was seen as failed")

    async def _see_the_schedule(self) -> None:
        call = self.client.call

        async def has_ticked() -> bool:
            return len(await call("list", workflow="pulse")) >= 5

        await until("the schedule has come five times", has_ticked)
        created = sorted(run["created_ms"] for run in await call("list", workflow="pulse"))
        self.timeline.say("client", f"the schedule has come {len(created)} times")
        seconds = [at // 1000 for at in created]
        self.timeline.check(
            len(set(seconds)) == len(seconds), "the schedule started one run a second, and no second twice"
        )

    async def _see_the_ends(self, order: str, reminder: str) -> None:
        say, call, check = self.timeline.say, self.client.call, self.timeline.check
        ended = await call("wait", run_id=reminder, seconds=20)
        say("client", f"reminder is {ended['status']}: {ended['output']}")
        in_time = ended["started_ms"] >= self._reminder_due_ms
        check(ended["status"] == "succeeded" and in_time, "the delayed run started after its 3 s, not before")
        ended = await call("wait", run_id=order, seconds=45)
        say("client", f"order is {ended['status']}: {ended['output']}")
        self.journal.read()
        expected = {"reserved": 2, "receipt": "receipt-A-17", "invoice": "invoice-A-17", "parcel": "parcel-A-17"}
        check(
            ended["status"] == "succeeded" and ended["output"] == expected, "the order succeeded with the right output"
        )
        check(ended["attempt"] == 3, "the failing step was retried twice, and then recovered")
        check(self.journal.count(order, "charge") == 3, "the card was charged in the third attempt only")
        check(self.journal.count(order, "reserve") == 1, "the finished step before it ran once, over three attempts")
        check(self.journal.count(order, "pack begins") == 2, "the step of the killed worker was begun again")
        check(self.journal.worker_of(order, "pack ends") != self._killed, "the other worker finished it")
        check(self.journal.count(order, "ship") == 1, "the order was shipped once")
        steps = await call("steps", run_id=order)
        names = ["reserve", "charge", "invoice", "pack", "ship"]
        check(steps == [[name, "succeeded"] for name in names], "its record shows five steps, all succeeded")
        invoices = await call("list", workflow="invoice")
        once = [run["parent"] for run in invoices] == [order]
        check(once, "the invoice was a run of its own, which the order started once")

    async def _end(self) -> None:
        await self.client.stop()
        codes = [await program.stop() for name, program in self.workers.items() if name != getattr(self, "_killed", "")]
        codes.append(await self.gateway.stop())
        self.timeline.check(codes == [0, 0], "the remaining worker and the gateway stopped cleanly")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stubs-python", default=sys.executable, help="an interpreter that has grpcio-tools")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redflow-demo-") as made:
        folder = Path(made)
        (folder / "stubs").mkdir()
        generate_plain_stubs(options.stubs_python, folder / "stubs")
        demo = Demo(folder)
        try:
            asyncio.run(demo.play())
        except Exception as error:  # whatever went wrong, the demo says so and shows the log
            demo.timeline.check(False, f"the story went to its end ({type(error).__name__}: {error})")
            sys.stderr.write((folder / "log").read_text() if (folder / "log").exists() else "")
        return demo.timeline.verdict()


if __name__ == "__main__":
    sys.exit(main())
