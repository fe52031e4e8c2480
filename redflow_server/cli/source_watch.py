"""Which Python files have changed, of those that a worker is made of. By their state, which somebody has to ask for."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOREIGN: Final = frozenset({"site-packages", "node_modules", "__pycache__"})
"""Folders whose files are not the user's, beside hidden ones and virtual environments."""


def is_own(file: str, folder: str) -> bool:
    """Whether it is a Python file below the folder, and not of a library that is installed there."""
    if not file.endswith(".py") or not file.startswith(f"{folder}{os.sep}"):
        return False
    return not any(map(_is_foreign, file[len(folder) + 1 :].split(os.sep)))


def _is_foreign(name: str) -> bool:
    return name in FOREIGN or name.startswith(".")


@dataclass(frozen=True, slots=True)
class FileState:
    """What differs when the content may. Not the inode: some file systems give a file another one at times."""

    size: int
    written_ns: int
    changed_ns: int
    """When it came to its place, too: what is moved there, or back, keeps the time at which it was written."""

    @classmethod
    def of(cls, file: str) -> FileState:
        """Raises OSError when it is not there."""
        found = os.stat(file)
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @property
    def since_ns(self) -> int:
        """Since when it is so."""
        return max(self.written_ns, self.changed_ns)


class SourceWatch:
    """The files of the package of a module, and those that the worker says it has imported from below the folder."""

    def __init__(self, module: str, folder: Path) -> None:
        self._folder = str(folder)
        self._roots = _places(module.partition(".")[0])
        self._imported: set[str] = set()
        self._seen: dict[str, FileState] = {}
        self._began_ns = 0

    def begin(self) -> None:
        """A worker is about to read the files as they are now."""
        self._began_ns = time.time_ns()
        self.change()

    def add(self, files: Iterable[str]) -> None:
        """What the worker has imported."""
        self._imported.update(files)

    def widen(self) -> None:
        """A worker that cannot start does not say what it lacks: from now on any file below the folder counts."""
        if self._folder not in self._roots:
            self._roots.append(self._folder)

    def change(self) -> str | None:
        """A file that is not as it was when this was last asked, if there is one."""
        changed = None
        for file in self._imported.union(*map(_python_files, self._roots)):
            try:
                state = FileState.of(file)
            except OSError:
                continue  # an editor may write a new one and rename it; what is gone for good is missed by an import
            # One that was not seen before was read by the worker as it is, unless it is newer than the worker.
            if state != self._seen.get(file, state if state.since_ns <= self._began_ns else None):
                changed = os.path.relpath(file, self._folder)
            self._seen[file] = state
        return changed


def _places(package: str) -> list[str]:
    """The folders of a package, or the file of a module that is none; nothing when there is no such thing yet."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ()) or [spec.origin or ""]


def _python_files(root: str) -> Iterator[str]:
    if root.endswith(".py"):
        yield root
    for folder, folders, files in os.walk(root):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not _is_foreign(name)]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))
