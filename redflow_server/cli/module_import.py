"""Finding an object of a user's module by `MODULE:ATTR`, as it is written on a command line."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from redflow_server.cli.escaping import printable_block
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed


def split_place(place: str) -> tuple[str, str] | None:
    """The module and the attribute, which may be empty; None when it is not written as MODULE or MODULE:ATTR."""
    name, colon, attribute = place.partition(":")
    is_place = all(part.isidentifier() for part in name.split(".")) and (attribute or not colon)
    return (name, attribute) if is_place else None


def module_of(place: str) -> str | None:
    """The module, and what is named in it, for who has named its file."""
    file, colon, attribute = place.partition(":")
    parts = [part for part in file.removesuffix(".py").split("/") if part not in ("", ".")]
    is_module = file.endswith(".py") and all(part.isidentifier() for part in parts)
    return f"{'.'.join(parts)}{colon if attribute else ''}{attribute}" if is_module else None


def load(name: str, attribute: str, where: str) -> object:
    """The attribute of a module, or the module. Raises CommandFailed, which begins with `where` if the module lacks it.

    When the module itself raises, its traceback goes to stderr first.
    """
    # A console script begins with its own directory on the path, where no user's module is.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found: object = _import(name)
    for part in attribute.split(".") if attribute else ():
        if not hasattr(found, part):
            raise CommandFailed(f"{where}: there is no {part} in {described(found)}")
        found = getattr(found, part)
    return found


def load_object(place: str, flag: str, example: str) -> object:
    """The object that a flag names by MODULE:ATTR. Raises CommandFailed, for a class, too."""
    named = split_place(place)
    if named is None or not named[1]:
        own = module_of(place) or ""
        example = own if ":" in own else example
        raise CommandFailed(f"{flag} {place}: must be MODULE:ATTR, as in {example}", ExitCode.USAGE)
    found = load(*named, f"{flag} {place}")
    if isinstance(found, type):
        raise CommandFailed(f"{flag} {place}: is a class; name an object of it, as by `it = {found.__name__}(...)`")
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Of the module itself or a package above it; what the module imports in vain is the user's error.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            module = module_of(name) if error.name == name else None
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


def described(value: object) -> str:
    """What something is, in a sentence."""
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
