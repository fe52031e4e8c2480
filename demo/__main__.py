"""Shows an order on its way through crashes, a delayed run and a cancel, with real processes, and checks what happened.

Exit code 0 when everything was as promised, 1 when anything was not.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from demo.programs import PlainClient, Program, generate_plain_stubs

LEASE_S = 3
PATIENCE_S = 45.0
HEARD_AFTER_S = 0.2


class Timeline:
    """What happens, in the order in which it happens, whoever is heard of it first."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._held: list[tuple[float, str, str]] = []
        self.checks: list[tuple[bool, str]] = []

    def say(self, who: str, what: str, at: float | None = None) -> None:
        """Something that happens now, or that happened `at` a moment of the monotonic clock."""
        self._held.append((time.monotonic() if at is None else at, who, what))

    def show(self, until: float = math.inf) -> None:
        """Prints what happened before the moment: nobody will be heard of anything earlier."""
        self._held.sort(key=lambda event: event[0])
        while self._held and self._held[0][0] < until:
            at, who, what = self._held.pop(0)
            sys.stdout.write(f"{at - self._began:6.2f} s  {who:<10} {what}\n")
        sys.stdout.flush()

    def check(self, holds: bool, what: str) -> None:  # noqa: FBT001  # the outcome is what is checked
        """One line of the list at the end."""
        self.checks.append((holds, what))

    def verdict(self) -> int:
        """Prints the list; the exit code."""
        self.show()
        sys.stdout.write("\n")
        for holds, what in self.checks:
            sys.stdout.write(f"  [{'x' if holds else ' '}] {what}\n")
        failed = sum(not holds for holds, _ in self.checks)
        took = time.monotonic() - self._began
        sys.stdout.write(f"\n{len(self.checks) - failed} of {len(self.checks)} checks hold; {took:.1f} s\n")
        return 1 if failed else 0


class Journal:
    """What the workflows did to the world."""

    def __init__(self, path: Path, timeline: Timeline) -> None:
        self.path = path
        path.touch()
        self._timeline = timeline
        self._seen = 0
        self.lines: list[tuple[str, str, str]] = []

    async def follow(self) -> None:
        """Has the timeline show what is old enough for every process to have written it down."""
        while True:
            self.read()
            self._timeline.show(time.monotonic() - HEARD_AFTER_S)
            await asyncio.sleep(0.05)

    def read(self) -> None:
        """Reads what is new."""
        lines = self.path.read_text().splitlines()
        for line in lines[self._seen :]:
            at, worker, run_id, what = line.split("\t")
            self.lines.append((worker, run_id, what))
            self._timeline.say(worker, what, float(at))
        self._seen = len(lines)

    def count(self, run_id: str, what: str) -> int:
        """How often a run did something."""
        return sum(1 for _, run, done in self.lines if run == run_id and done.startswith(what))

    def worker_of(self, run_id: str, what: str) -> str | None:
        """The worker that did something last."""
        workers = [worker for worker, run, done in self.lines if run == run_id and done.startswith(what)]
        return workers[-1] if workers else None


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
            await self._see_the_ends(order, reminder)
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

    async def _see_the_ends(self, order: str, reminder: str) -> None:
        say, call, check = self.timeline.say, self.client.call, self.timeline.check
        ended = await call("wait", run_id=reminder, seconds=20)
        say("client", f"reminder is {ended['status']}: {ended['output']}")
        in_time = ended["started_ms"] >= self._reminder_due_ms
        check(ended["status"] == "succeeded" and in_time, "the delayed run started after its 3 s, not before")
        ended = await call("wait", run_id=order, seconds=45)
        say("client", f"order is {ended['status']}: {ended['output']}")
        self.journal.read()
        expected = {"reserved": 2, "receipt": "receipt-A-17", "parcel": "parcel-A-17"}
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
        names = ["reserve", "charge", "pack", "ship"]
        check(steps == [[name, "succeeded"] for name in names], "its record shows four steps, all succeeded")

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
