"""Cron schedules, as workflows name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from redflow_sdk._names import check_name
from redflow_sdk.converter import encode


class _NoInput:
    def __repr__(self) -> str:
        return "NO_INPUT"


NO_INPUT: Final = _NoInput()
"""A schedule without input: its runs get an empty object. None is a value, and stays null."""


@dataclass(frozen=True, slots=True)
class Cron:
    """When runs of a workflow start by themselves.

    When clocks change, a fixed time that is skipped comes right after the gap, and one that is repeated comes once;
    intervals keep their pace. Raises InvalidInputError for texts that are none, or longer than 256 bytes; an expression
    or time zone that the gateway does not know is logged by the worker, and its workflow is in force without it.

        @workflow(cron=[Cron("0 9 * * 1-5", timezone="Europe/Berlin", input={"kind": "digest"})])
    """

    expression: str
    """Five fields, minute first, or six with seconds first, or an alias such as `@hourly`."""
    timezone: str = ""
    """An IANA name, such as `Europe/Berlin`; empty is UTC."""
    input: object = NO_INPUT
    """What the runs get, any value that can be written as JSON; without it an empty object. None is a value: null."""
    id: str = ""
    """Keeps the schedule's history when the rest of it changes; unique within the workflow. Empty is one made of the
    other fields.
    """

    def __post_init__(self) -> None:
        check_name("expression", self.expression)
        for field, name in (("timezone", self.timezone), ("id", self.id)):
            if name != "":
                check_name(field, name)

    @property
    def data(self) -> bytes | None:
        """The input as JSON; None when there is none. Raises SerializationError; for the SDK itself."""
        return None if self.input is NO_INPUT else encode(self.input)
