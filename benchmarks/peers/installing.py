"""Installs a peer into a folder of its own, once for each set of pins; the product never does."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from benchmarks.rig import ROOT

PINS: Final = Path(__file__).with_name("pins.toml")
FOLDER: Final = ROOT / ".venv-peers"
"""Ignored by git, as every folder that begins so."""
READY: Final = "ready"


def python_of(peer: str) -> str:
    """The interpreter of a peer that pip has installed."""
    return str(FOLDER / peer / "bin" / "python")


def modules_of(peer: str) -> str:
    """The folder in which Node finds a peer that npm has installed."""
    return str(FOLDER / peer)


def install(peer: str) -> None:
    """Makes it ready, if it is not or has other pins now."""
    pins: dict[str, list[str]] = tomllib.loads(PINS.read_text())[peer]
    folder = FOLDER / peer
    ready = folder / READY
    if ready.is_file() and ready.read_text() == repr(pins):
        return
    sys.stderr.write(f"installing {peer} into {folder.relative_to(ROOT)}, which may take a minute or two\n")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if "pip" in pins:
        _run(sys.executable, "-m", "venv", str(folder))
        _run(python_of(peer), "-m", "pip", "install", "--quiet", *pins["pip"])
    if "npm" in pins:
        _run("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error", *pins["npm"])
    ready.write_text(repr(pins))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"cannot install a peer: {error}") from None
