"""The files that the tidy tests look at."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file that is or would be committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return tuple(ROOT / name for name in listed if (ROOT / name).is_file())


def written_python(*folders: str) -> Iterator[Path]:
    """Python files by hand, in these folders; in all when none is named."""
    for path in tracked_files():
        name = str(path.relative_to(ROOT))
        if path.suffix == ".py" and not name.startswith("redflow_sdk/proto/") and name.startswith(folders or ""):
            yield path


@cache
def syntax(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text())


def shown(path: Path) -> str:
    """The path as messages show it."""
    return str(path.relative_to(ROOT))
