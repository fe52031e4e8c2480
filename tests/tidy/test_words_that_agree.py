"""Words that several places have to know: a new kind of wait, or a new reason to stop, is in all of them or in none."""

from __future__ import annotations

import re
from typing import Final

from redflow_sdk import _wait_steps
from redflow_sdk._transport import incoming
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.leases import StopReason
from redflow_server.domain.runs import WaitingKind
from redflow_server.domain.states import StepKind
from redflow_server.domain.waits import KIND_OF
from redflow_server.store import codec, invariants_waits
from redflow_server.store.scripts import FOLDER

KINDS_OF_WAITS: Final = {kind.value for kind in KIND_OF.values()}

STOP_WORDS: Final = (
    r"'stop ' \.\. run\.leaseToken \.\. ' (\w+) '",
    r"order_to_stop\(run, '(\w+)'\)",
    r"return '(\w+)', [^,]+, tonumber\(run\.\w+RequestedAt\)",
)
"""Where a script says why a handler has to stop."""


def words_in_lua(pattern: str) -> set[str]:
    return {word for path in FOLDER.rglob("*.lua") for word in re.findall(pattern, path.read_text())}


def without(prefix: str, names: list[str]) -> set[str]:
    return {name.removeprefix(prefix).lower() for name in names}


def test_the_kinds_of_waits_are_the_same_wherever_they_are_listed() -> None:
    [in_lua] = words_in_lua(r"local WAITS = \{(.+)\}")
    listed = {
        "wait_steps.lua": set(re.findall(r"(\w+) = true", in_lua)),
        "the checker": {kind.value for kind in invariants_waits.WAITS},
        "what runs are said to wait for": {kind.value for kind in codec._WAITS_FOR},
        "the protocol": {field.name for field in worker_pb2.Wait.DESCRIPTOR.oneofs_by_name["wait"].fields},
        "the SDK": {kind.name.lower() for kind in _wait_steps.KIND_OF.values()},
    }
    assert listed == dict.fromkeys(listed, KINDS_OF_WAITS)


def test_the_checker_says_the_target_of_waits_only() -> None:
    assert invariants_waits.NAMES_TARGET <= invariants_waits.WAITS


def test_a_kind_of_wait_is_a_kind_of_step_and_a_reason_why_a_run_waits_on_the_wire_too() -> None:
    steps, reasons = {kind.value for kind in StepKind}, {kind.value for kind in WaitingKind}
    assert steps >= KINDS_OF_WAITS and reasons >= KINDS_OF_WAITS
    assert without("STEP_KIND_", run_pb2.StepKind.keys()) - {"unspecified"} == steps
    assert without("WAITING_KIND_", run_pb2.WaitingKind.keys()) - {"unspecified"} == reasons
    assert set(incoming.STEP_KIND_OF) == set(run_pb2.StepKind.values())


def test_the_orders_to_stop_that_scripts_give_say_reasons_that_gateways_know() -> None:
    found = [words_in_lua(pattern) for pattern in STOP_WORDS]
    assert all(found), "each place is found"
    assert set.union(*found) <= {reason.value for reason in StopReason}


def test_there_is_no_other_place_where_a_script_orders_to_stop() -> None:
    orders = [line for path in FOLDER.rglob("*.lua") for line in path.read_text().splitlines() if "'stop '" in line]
    passed_on = r"'stop ' \.\. run\.leaseToken \.\. ' ' \.\. reason"
    assert all(re.search(f"{STOP_WORDS[0]}|{passed_on}", line) for line in orders)
