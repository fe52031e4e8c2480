"""A user's program passes the strict type checker, which sees the types of inputs and outputs throughout."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("user_program.py")


def test_a_users_program_can_be_imported() -> None:
    runpy.run_path(str(PROGRAM))


def test_a_users_program_is_clean_under_mypy_strict(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("redflow-user-types")
    copied = tmp_path / "program.py"
    copied.write_text(PROGRAM.read_text())
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", copied.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
