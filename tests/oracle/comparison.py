"""Whether two values of the model's terms are the same, and if not, where they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from tests.oracle.dump import shortened
from tests.oracle.model.world import Expiry

MISSING: Final = "nothing"
MOST_SHOWN: Final = 40


def differences(model: object, seen: object, path: str = "") -> Iterator[str]:
    """Lines that say where the model has something else than was seen."""
    if model == seen:
        return
    if isinstance(model, Expiry) or isinstance(seen, Expiry):
        yield f"{path}: the model has {model}, seen is {seen}"
    elif dataclasses.is_dataclass(model) and type(model) is type(seen):
        for field in dataclasses.fields(model):
            yield from differences(getattr(model, field.name), getattr(seen, field.name), f"{path}.{field.name}")
    elif isinstance(model, Mapping) and isinstance(seen, Mapping):
        for key in sorted(model.keys() | seen.keys(), key=repr):
            yield from differences(model.get(key, MISSING), seen.get(key, MISSING), f"{path}[{key!r}]")
    elif isinstance(model, (list, tuple)) and isinstance(seen, (list, tuple)) and len(model) == len(seen):
        for at, (one, other) in enumerate(zip(model, seen, strict=True)):
            yield from differences(one, other, f"{path}[{at}]")
    elif isinstance(model, bytes) and isinstance(seen, bytes):
        if shortened(model) != shortened(seen):
            yield f"{path}: the model has {shortened(model)!r}, seen is {shortened(seen)!r}"
    else:
        yield f"{path}: the model has {model!r}, seen is {seen!r}"


def told(lines: Iterator[str]) -> list[str]:
    """As many of them as one reads."""
    found = list(lines)
    more = [f"... and {len(found) - MOST_SHOWN} more"] if len(found) > MOST_SHOWN else []
    return [line if len(line) < 1000 else f"{line[:1000]}..." for line in found[:MOST_SHOWN]] + more
