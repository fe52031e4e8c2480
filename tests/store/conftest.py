"""Fixtures of the store's tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has at most about 100 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="line-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)
