"""The process of a worker under `--reload`: tells its parent which files it has imported, and ends when that does."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import ModuleType
from typing import Final, NoReturn

from redflow_server.cli.program import main
from redflow_server.cli.source_watch import is_own

PAUSE_S: Final = 0.5
END_S: Final = 15.0
"""A worker ends sooner, whatever its handlers do, unless one of them blocks its loop: then it hears no signal."""


class ImportReport:
    """Writes the files of modules to a pipe, each once, with a zero byte behind it."""

    def __init__(self, pipe: int) -> None:
        os.set_inheritable(pipe, False)
        self._pipe = pipe
        self._folder = os.getcwd()
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def tell(self) -> None:
        """Says what is new."""
        with self._lock:
            # By their dictionaries: a module may answer whatever it is asked for, or import more to do so.
            files = {vars(it).get("__file__") for it in [*sys.modules.values()] if isinstance(it, ModuleType)}
            new = {file for file in files if isinstance(file, str) and is_own(file, self._folder)} - self._told
            self._told |= new
            try:
                with open(self._pipe, "wb", closefd=False) as pipe:
                    pipe.write(b"".join(os.fsencode(file) + b"\0" for file in sorted(new)))
            except BrokenPipeError:
                return  # the parent has ended, which is noticed elsewhere


def run(pipe: str, parent: str, *command: str) -> NoReturn:
    """Runs the command of the worker."""
    sys.argv = ["redflow", *command]
    report = ImportReport(int(pipe))
    threading.Thread(target=_accompany, args=(report, int(parent)), name="redflow-reload", daemon=True).start()
    try:
        code = main(command)
    finally:
        report.tell()
    sys.exit(code)


def _accompany(report: ImportReport, parent: int) -> None:
    while os.getppid() == parent:
        report.tell()
        time.sleep(PAUSE_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_S)
    os.kill(os.getpid(), signal.SIGKILL)
