"""Cron schedules, as workflows name them: what they say on the wire, and what is refused where they are defined."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from redflow_sdk import (
    Context,
    Cron,
    FailureContext,
    InputValidationError,
    InvalidInputError,
    SerializationError,
    workflow,
)
from redflow_sdk import Workflow as Defined
from tests.conftest import StartWorker
from tests.sdk.scripted_gateway import ScriptedGateway


@dataclass(frozen=True)
class Digest:
    kind: str
    limit: int = 10


def digest_of(*cron: Cron) -> Defined[Digest, None]:
    @workflow(name="digest", cron=cron)
    async def send(ctx: Context, digest: Digest) -> None: ...

    return send


def handles(context: FailureContext) -> None: ...


DAILY = Cron("0 9 * * 1-5", timezone="Europe/Berlin", input={"kind": "daily"}, id="daily")


# ---- on the wire ----


async def test_schedules_and_the_failure_handler_are_registered(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="all", cron=[DAILY, Cron("@hourly"), Cron("* * * * * *", input=None)],
              on_failure=handles, failure_handler_timeout=1.5)  # fmt: skip
    async def everything(ctx: Context, digest: Any) -> None: ...

    @workflow(name="none")
    async def nothing(ctx: Context) -> None: ...

    await connect(scripted, everything, nothing)
    first, second = scripted.log.opens()[0].message.workflows
    shown = [(cron.schedule_id, cron.expression, cron.timezone) for cron in first.cron]
    assert shown == [("daily", "0 9 * * 1-5", "Europe/Berlin"), ("", "@hourly", ""), ("", "* * * * * *", "")]
    assert first.cron[0].input.data == b'{"kind":"daily"}'
    assert not first.cron[1].HasField("input"), "no input is the gateway's empty object"
    assert first.cron[2].input.data == b"null", "None is a value"
    assert first.has_failure_handler and first.failure_handler_timeout.ToMilliseconds() == 1500
    assert list(second.cron) == [] and not second.has_failure_handler
    assert not second.HasField("failure_handler_timeout")


def test_whatever_the_gateway_is_told_of_schedules_changes_the_digest() -> None:
    versions = [
        digest_of(DAILY),
        digest_of(),
        digest_of(Cron("0 8 * * 1-5", timezone="Europe/Berlin", input={"kind": "daily"}, id="daily")),
        digest_of(Cron("0 9 * * 1-5", timezone="Europe/Paris", input={"kind": "daily"}, id="daily")),
        digest_of(Cron("0 9 * * 1-5", timezone="Europe/Berlin", input={"kind": "weekly"}, id="daily")),
        digest_of(Cron("0 9 * * 1-5", timezone="Europe/Berlin", input={"kind": "daily"})),
    ]
    assert len({version.digest for version in versions}) == len(versions)
    assert digest_of(DAILY).digest == versions[0].digest


def test_a_failure_handler_and_its_time_change_the_digest() -> None:
    def defined(**settings: Any) -> str:  # Any: arguments of the decorator
        @workflow(name="w", **settings)
        async def handler(ctx: Context) -> None: ...

        return handler.digest

    digests = [defined(), defined(on_failure=handles), defined(on_failure=handles, failure_handler_timeout=5)]
    assert len(set(digests)) == 3


def test_input_may_be_of_the_workflows_own_type() -> None:
    assert digest_of(Cron("@daily", input=Digest("daily", 5))).cron[0].data == b'{"kind":"daily","limit":5}'


def test_a_schedule_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        DAILY.expression = "@hourly"  # type: ignore[misc]  # that is the case


# ---- what is refused ----


def test_two_schedules_of_one_id_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"^Duplicate cron trigger id 'daily' in workflow 'digest'$"):
        digest_of(DAILY, Cron("@hourly", input={"kind": "hourly"}, id="daily"))


def test_schedules_without_ids_may_be_alike_to_the_sdk() -> None:
    again = Cron("@hourly", input={"kind": "a"})
    assert len(digest_of(again, Cron("@hourly", input={"kind": "b"})).cron) == 2


@pytest.mark.parametrize(
    ("cron", "place"),
    [
        (Cron("@hourly", input={"kind": 5}), "kind"),
        (Cron("@hourly", input={"limit": 5}), "kind"),
        (Cron("@hourly", input=None), "object"),
        (Cron("@hourly"), "kind"),
    ],
    ids=["a wrong type", "a missing field", "null", "no input"],
)
def test_input_that_does_not_fit_the_workflow_is_refused_where_it_is_defined(cron: Cron, place: str) -> None:
    with pytest.raises(InputValidationError, match="input of cron schedule '@hourly' of workflow 'digest'") as refused:
        digest_of(DAILY, cron)
    assert place in str(refused.value) and refused.value.details


def test_input_for_a_workflow_that_takes_none_is_refused() -> None:
    def defined(cron: Cron) -> None:
        @workflow(name="sweep", cron=[cron])
        async def sweep(ctx: Context) -> None: ...

    defined(Cron("@hourly"))
    defined(Cron("@hourly", input=None))
    with pytest.raises(InputValidationError, match=r"of workflow 'sweep': the workflow takes none; got dict"):
        defined(Cron("@hourly", input={}))


def test_input_that_is_no_json_is_refused() -> None:
    with pytest.raises(SerializationError, match="set"):
        digest_of(Cron("@hourly", input={"kind": {1, 2}}))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"expression": ""}, "expression"),
        ({"expression": 5}, "expression"),
        ({"expression": "* * * * *\n"}, "expression"),
        ({"expression": "@hourly", "timezone": None}, "timezone"),
        ({"expression": "@hourly", "timezone": "a\0"}, "timezone"),
        ({"expression": "@hourly", "id": 5}, "id"),
        ({"expression": "@hourly", "id": "x" * 257}, "id"),
    ],
)
def test_what_is_no_name_is_refused(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{field} must"):
        Cron(**arguments)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"cron": "@hourly"}, "cron"),
        ({"cron": DAILY}, "cron"),
        ({"cron": ["@hourly"]}, "cron"),
        ({"events": "order.paid"}, "events"),
        ({"on_failure": "notify"}, "on_failure"),
        ({"failure_handler_timeout": 0}, "failure_handler_timeout"),
        ({"failure_handler_timeout": float("nan")}, "failure_handler_timeout"),
    ],
)
def test_what_the_decorator_does_not_take_is_refused_by_name(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{field} must"):

        @workflow(name="w", **settings)
        async def handler(ctx: Context) -> None: ...
