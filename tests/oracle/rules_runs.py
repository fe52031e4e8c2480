"""Rules about runs as clients see them, and about the passing of time."""

from __future__ import annotations

from random import Random

from redflow_server.domain.runs import RunQuery
from redflow_server.domain.states import RunStatus
from tests.oracle import names
from tests.oracle.bench import START_MS, Call, a_call
from tests.oracle.requests import Requests
from tests.oracle.table import Table, move


class RunRules(Table):
    """Starting, reading and canceling runs."""

    @move(weight=3)
    def pass_time(self, random: Random) -> None:
        self.bench.now = max(START_MS, self.bench.now + self.requests(random).one_of(names.JUMPS_MS))

    @move(weight=6)
    def enqueue(self, random: Random) -> None:
        self.act_together(random, self._enqueue)

    def _enqueue(self, requests: Requests) -> Call:
        return a_call("enqueue", requests.start(), requests.one_of(("", *names.GATEWAYS)))

    @move()
    def read_run(self, random: Random) -> None:
        self.act_together(random, lambda requests: a_call("read_run", requests.run_id()))

    @move(when=lambda table: any(run.steps for run in table.bench.world.runs.values()))
    def read_steps(self, random: Random) -> None:
        self.act_together(random, self._read_steps)

    def _read_steps(self, requests: Requests) -> Call:
        run, run_id, token = requests.lease(lambda run: bool(run.steps))
        steps = list(run.steps) if run else []
        named = requests.some([*steps, "none"], 0, 3)
        # Which of all fit is decided by the order in which Redis has them.
        room = requests.one_of((0, 6, 1024 * 1024)) if named else 64 * 1024 * 1024
        most = requests.one_of((None, 0, 6))
        return a_call("read_steps", run_id, room, named, requests.one_of(("", token)), max_value_bytes=most)

    @move()
    def list_runs(self, random: Random) -> None:
        self.act(random, self._list_runs)

    def _list_runs(self, requests: Requests) -> Call:
        query = RunQuery(
            status=requests.one_of((None, None, *RunStatus)),
            workflow=requests.one_of((None, None, *names.WORKFLOWS)),
            limit=requests.one_of((1, 2, 50)),
            offset=requests.one_of((0, 0, 1, 3)),
            before_seq=requests.one_of((None, None, 3, self.bench.world.run_seq)),
        )
        return a_call("list_runs", query)

    @move(weight=2, when=lambda table: table.bench.world.runs)
    def cancel(self, random: Random) -> None:
        self.act_together(random, self._cancel)

    def _cancel(self, requests: Requests) -> Call:
        request_id = requests.one_of(("request-1", "request:2"))
        return a_call("cancel", requests.run_id(), requests.one_of(names.REASONS), request_id)

    @move(when=lambda table: table.bench.world.runs)
    def watch_run(self, random: Random) -> None:
        self.act_together(
            random, lambda requests: a_call("watch_run", requests.run_id(), requests.one_of(names.GATEWAYS))
        )
