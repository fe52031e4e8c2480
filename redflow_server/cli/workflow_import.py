"""Finding workflows by `module:attribute`, as users write it on a command line."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from redflow_sdk import Worker, Workflow
from redflow_server.cli.escaping import printable_block
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed

AnyWorkflow = Workflow[Any, Any]  # Any: workflows of all kinds


def load_workflows(place: str) -> list[AnyWorkflow]:
    """The workflows at `MODULE:ATTR`, or all of `MODULE`. Raises CommandFailed that says what was not found.

    When the module itself raises, its traceback goes to stderr first.
    """
    name, colon, attribute = place.partition(":")
    if not all(part.isidentifier() for part in name.split(".")) or (colon and not attribute):
        example = _module_of(place) or "shop.workflows:send_receipt"
        raise CommandFailed(f"{place}: must be MODULE or MODULE:ATTR, as in {example}", ExitCode.USAGE)
    # A console script begins with its own directory on the path, where no user's module is.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found: object = _import(name)
    for part in attribute.split(".") if attribute else ():
        if not hasattr(found, part):
            raise CommandFailed(f"{place}: there is no {part} in {_described(found)}")
        found = getattr(found, part)
    return _workflows(place, found)


def _module_of(place: str) -> str | None:
    """The module, and what is named in it, for who has named its file."""
    file, colon, attribute = place.partition(":")
    parts = [part for part in file.removesuffix(".py").split("/") if part not in ("", ".")]
    is_module = file.endswith(".py") and all(part.isidentifier() for part in parts)
    return f"{'.'.join(parts)}{colon if attribute else ''}{attribute}" if is_module else None


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Of the module itself or a package above it; what the module imports in vain is the user's error.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            module = _module_of(name) if error.name == name else None
            hint = f"; the module in a file {name} is {module}" if module else ""
            where = f"in {Path.cwd()} or on the Python path"
            raise CommandFailed(f"there is no module {error.name} {where}{hint}") from None
        failed: BaseException = error
    except (Exception, SystemExit) as error:  # whatever the user's module does
        failed = error
    sys.stderr.write(printable_block(_traceback(failed)))
    raise CommandFailed(f"{name} cannot be imported: {type(failed).__name__}: {failed}") from None


def _traceback(error: BaseException) -> str:
    """The traceback from the user's first frame on; all of it when there is none, as for a syntax error."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and _is_machinery(frames):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _is_machinery(frames: TracebackType) -> bool:
    file = frames.tb_frame.f_code.co_filename
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


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
        raise CommandFailed(f"{place}: must be a workflow or a list of workflows; is {_described(found)}")
    if not workflows:
        raise CommandFailed(f"{place}: there are no workflows in {_described(found)}")
    return workflows


def _all_workflows(place: str, found: Iterable[object]) -> Iterable[AnyWorkflow]:
    for index, item in enumerate(found):
        if not isinstance(item, Workflow):
            raise CommandFailed(f"{place}[{index}]: must be a workflow; is {_described(item)}")
        yield item


def _described(value: object) -> str:
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
