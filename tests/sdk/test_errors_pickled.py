"""Errors of the SDK cross the borders of processes, as in pools, and are the same on the other side."""

from __future__ import annotations

import inspect
import pickle
from typing import Final

import pytest

from redflow_sdk import errors
from redflow_sdk.records import Failure

FAILURE: Final = Failure("LookupError", "no address")
MORE: Final[dict[str, object]] = {
    "delay": 2.5,
    "details": [{"field": "id"}],
    "failure": FAILURE,
    "run_id": "run-1",
    "workflow": "order",
    "reason": "SOMETHING",
}
KINDS: Final = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.RedflowError) and kind.__module__ == errors.__name__
]


def an_error(kind: type[errors.RedflowError]) -> errors.RedflowError:
    parameters = list(inspect.signature(kind.__init__).parameters)[1:]
    given = {name: MORE[name] for name in parameters if name in MORE}
    return kind("what went wrong", **given)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_comes_out_of_a_pickle_as_it_was(kind: type[errors.RedflowError]) -> None:
    error = an_error(kind)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert type(again) is kind
    assert (str(again), again.args, again.__dict__) == (str(error), error.args, error.__dict__)
