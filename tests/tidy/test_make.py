"""`make` makes its environments with a Python that will do, and makes them whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.source_files import ROOT

AN_OLDER_PYTHON = "import sys; sys.version_info = (3, 10, 13, 'final', 0)"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `make` needs of the repository before it has made an environment."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    # Of what `make` would install, nothing is here: it gets as far as to the first `pip`.
    environment["PIP_NO_INDEX"] = "1"
    return subprocess.run(
        ["make", *arguments], cwd=checkout, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("target", ["demo", "test", "gen"])
def test_a_python_that_is_too_old_makes_no_environment_and_is_told_of_in_one_sentence(
    target: str, checkout: Path
) -> None:
    pretending = checkout / "older"
    pretending.mkdir()
    (pretending / "sitecustomize.py").write_text(AN_OLDER_PYTHON)
    python = f"env PYTHONPATH={pretending} {sys.executable}"
    ended = make(checkout, target, f"PYTHON={python}")
    assert ended.returncode != 0
    assert ended.stderr.splitlines()[0] == (
        f"redflow needs Python 3.11 or newer, and {python} is 3.10.13; say: make {target} PYTHON=python3.11"
    )
    assert list(checkout.glob(".venv*")) == []


def test_an_environment_that_was_made_in_part_is_replaced(checkout: Path) -> None:
    remains = checkout / ".venv" / "lib" / "of_another_python"
    remains.mkdir(parents=True)
    ended = make(checkout, ".venv/ready", f"PYTHON={sys.executable}")
    assert "pip" in ended.stderr, ended
    assert (checkout / ".venv" / "bin" / "python").exists()
    assert not remains.exists()
    assert not (checkout / ".venv" / "ready").exists()


def test_every_environment_is_made_so(checkout: Path) -> None:
    for name in (".venv", ".venv-stubs"):
        said = make(checkout, "-n", f"{name}/ready", "PYTHON=python3").stdout
        assert f"python3 -m venv --clear {name}\n" in said
        assert said.index("3.11 or newer") < said.index("-m venv")
