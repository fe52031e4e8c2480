"""Which workflows `MODULE:ATTR` means on the command line of a worker."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from redflow_sdk import Worker, Workflow
from redflow_sdk.workflow import AnyWorkflow
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.module_import import described, load, module_of, split_place


def load_workflows(place: str) -> list[AnyWorkflow]:
    """The workflows at `MODULE:ATTR`, or all of `MODULE`. Raises CommandFailed that says what was not found.

    When the module itself raises, its traceback goes to stderr first.
    """
    named = split_place(place)
    if named is None:
        example = module_of(place) or "shop.workflows:send_receipt"
        raise CommandFailed(f"{place}: must be MODULE or MODULE:ATTR, as in {example}", ExitCode.USAGE)
    return _workflows(place, load(*named, place))


def _workflows(place: str, found: object) -> list[AnyWorkflow]:
    if isinstance(found, Workflow):
        return [found]
    if isinstance(found, Worker):
        raise CommandFailed(f"{place}: is a Worker; name its workflows, or run it with `asyncio.run(worker.run())`")
    if isinstance(found, ModuleType):
        # By identity: a workflow may have several names in a module.
        workflows = list({id(value): value for value in vars(found).values() if isinstance(value, Workflow)}.values())
    elif isinstance(found, (list, tuple)):
        workflows = list(_all_workflows(place, found))
    else:
        raise CommandFailed(f"{place}: must be a workflow or a list of workflows; is {described(found)}")
    if not workflows:
        raise CommandFailed(f"{place}: there are no workflows in {described(found)}")
    return workflows


def _all_workflows(place: str, found: Iterable[object]) -> Iterable[AnyWorkflow]:
    for index, item in enumerate(found):
        if not isinstance(item, Workflow):
            raise CommandFailed(f"{place}[{index}]: must be a workflow; is {described(item)}")
        yield item
