"""`redflow worker`: running the workflows of a module, and who else does."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor

from redflow_sdk import SessionRefusedError, Worker
from redflow_server.cli import heap, worker_views
from redflow_server.cli.arguments import add_verb, listen_address, seconds, text, whole
from redflow_server.cli.client import add_call, add_target
from redflow_server.cli.codec_argument import add_codec, load_codec
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.last_moment import LastMoment
from redflow_server.cli.logs import log_to_stderr
from redflow_server.cli.middleware_argument import add_middleware, load_middleware
from redflow_server.cli.output import say
from redflow_server.cli.probes import Probes
from redflow_server.cli.reload import run_reloading
from redflow_server.cli.signals import HANG_UP, outlives_terminal
from redflow_server.cli.workflow_import import load_workflows

log = logging.getLogger("redflow.worker")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    example = "redflow worker run shop.workflows --queue mail --concurrency 10"
    about = "Run workflows until SIGTERM or Ctrl-C, then drain."
    _add_run(add_verb(verbs, "run", "run a worker", example, about=about))
    listed = add_verb(verbs, "list", "list the workers that are connected", "redflow worker list")
    add_call(listed, worker_views.list_workers)
    shown = add_verb(verbs, "get", "show a worker that is connected", "redflow worker get shop-1")
    shown.add_argument("worker", type=text, metavar="WORKER", help="its id, or its name")
    add_call(shown, worker_views.get_worker)


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "place",
        type=text,
        metavar="MODULE[:ATTR]",
        help="where the workflows are: a workflow, a list of them or a module; all of MODULE's without ATTR",
    )
    add_target(run)
    run.add_argument(
        "--queue", type=text, action="append", help="a queue to serve, repeatable (default: those of the workflows)"
    )
    run.add_argument(
        "--concurrency", type=whole(1, 10_000), default=50, metavar="N", help="runs at once at most (%(default)s)"
    )
    run.add_argument("--owner", type=text, help="whose set of workflows it is (default: REDFLOW_OWNER, or default)")
    run.add_argument("--name", type=text, help="what the worker is called in listings (default: host and process)")
    run.add_argument("--build-id", type=text, metavar="ID", help="tells builds apart (default: from the workflows)")
    run.add_argument(
        "--drain-grace",
        type=seconds(0, 86_400),
        default=30.0,
        metavar="SECONDS",
        help="what runs have to finish on shutdown before they are handed back (%(default)g)",
    )
    run.add_argument(
        "--park-window",
        type=seconds(0, 86_400),
        default=10.0,
        metavar="SECONDS",
        help="how long a handler that waits stays in memory; 0 keeps none (%(default)g)",
    )
    run.add_argument(
        "--max-parked",
        type=whole(0, 10_000),
        default=1000,
        metavar="N",
        help="how many of these at once, beyond --concurrency (%(default)s)",
    )
    add_codec(run)
    add_middleware(run)
    run.add_argument(
        "--health",
        type=listen_address,
        metavar="HOST:PORT",
        help="where HTTP probes of /livez and /readyz are answered (default: nowhere)",
    )
    run.add_argument(
        "--reload",
        action="store_true",
        help="for development: restart when the code changes; runs at work are handed back at once",
    )
    run.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> ExitCode:
    if arguments.reload:
        return run_reloading(arguments.place, arguments.command_line)
    workflows = load_workflows(arguments.place)
    codec, middleware = load_codec(arguments.codec), load_middleware(arguments.middleware)
    # After the user's modules: where they set up logging, theirs is used.
    log_to_stderr(logging.INFO)
    try:
        worker = Worker(
            arguments.target,
            workflows=workflows,
            queues=arguments.queue,
            concurrency=arguments.concurrency,
            owner=arguments.owner,
            name=arguments.name,
            build_id=arguments.build_id,
            drain_grace=arguments.drain_grace,
            park_window=arguments.park_window,
            max_parked=arguments.max_parked,
            codec=codec,
            middleware=middleware,
        )
    except ValueError as error:
        raise CommandFailed(f"{arguments.place}: {error}") from error
    if arguments.health is not None:
        log.info("probes are answered at http://%s", Probes(lambda: worker.health).open(arguments.health))
    last_moment = LastMoment()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        code = runner.run(_work(worker, arguments.target, last_moment))
    last_moment.wait_for_threads()
    return code


def _new_loop() -> asyncio.AbstractEventLoop:
    """The loop of handlers and steps: of uvloop, where that is installed, as it is with the extra `server`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _work(worker: Worker, target: str, last_moment: LastMoment) -> ExitCode:
    heap.settle()
    # Of our own: what waits in it for a thread when the worker ends is not begun any more.
    threads = ThreadPoolExecutor(thread_name_prefix="redflow-default")
    loop = asyncio.get_running_loop()
    loop.set_default_executor(threads)
    if not outlives_terminal():
        loop.add_signal_handler(HANG_UP, os.kill, os.getpid(), signal.SIGTERM)
    code = ExitCode.INTERRUPTED
    try:
        await worker.run()
        code = ExitCode.OK
    except SessionRefusedError as error:
        say(f"the gateway at {target} refuses the worker: {error}")
        code = ExitCode.REFUSED
    finally:
        last_moment.begin(code)
        threads.shutdown(wait=False, cancel_futures=True)
    return code
