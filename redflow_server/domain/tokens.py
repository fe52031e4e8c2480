"""Completion tokens: opaque strings that end a wait, for whoever was given one.

A token names its run and step and has 88 random bits: whoever has it may complete that step, and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from redflow_server.domain.errors import TokenNotFound
from redflow_server.domain.failures import Failure
from redflow_server.domain.ids import RUN_ID, new_secret
from redflow_server.domain.payloads import Payload

_TOKEN: Final = re.compile(rf"tok_({RUN_ID.pattern})\.([A-Za-z0-9_-]{{1,400}})\.[A-Za-z0-9_-]{{15}}")


@dataclass(frozen=True, slots=True)
class TokenStep:
    """The step that a token is for."""

    run_id: str
    step_name: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What a token is completed with: a `failure`, or an `output`, which may be absent."""

    token: str
    step: TokenStep
    output: Payload | None
    failure: Failure | None


def new_token(run_id: str, step_name: str) -> str:
    """A token for a step."""
    name = base64.urlsafe_b64encode(step_name.encode()).decode().rstrip("=")
    return f"tok_{run_id}.{name}.{new_secret()}"


def step_of(token: str) -> TokenStep:
    """The step that a token is for. Raises TokenNotFound for what is no token."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise TokenNotFound
    try:
        return TokenStep(found[1], base64.urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4)).decode())
    except (binascii.Error, ValueError):
        raise TokenNotFound from None
