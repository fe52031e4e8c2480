"""A workflow comes to the same inline and on a real gateway with a real worker, whatever it does."""

from __future__ import annotations

import pytest

from redflow_sdk import Client, Context, InputValidationError, SerializationError, workflow
from redflow_sdk.testing import run_inline
from tests.conftest import StartWorker
from tests.testing import children, seen, steps, waits
from tests.testing.scenario import Scenario

SCENARIOS = (*steps.SCENARIOS, *waits.SCENARIOS, *children.SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_it_comes_to_the_same(scenario: Scenario, client: Client, start_worker: StartWorker) -> None:
    await start_worker(*seen.workflows_of(scenario))
    on_gateway = await seen.on_gateway(scenario, client)
    assert await seen.inline(scenario) == on_gateway


@workflow
async def takes_a_number(ctx: Context, number: int) -> int:
    return number


@pytest.mark.parametrize(("given", "error"), [("seven", InputValidationError), ({1}, SerializationError)])
async def test_input_that_does_not_fit_is_refused_in_the_same_way(
    given: object, error: type[Exception], client: Client, start_worker: StartWorker
) -> None:
    await start_worker(takes_a_number)
    with pytest.raises(error) as on_gateway:
        await client.start(takes_a_number, given)  # type: ignore[call-overload]  # that is what is tried
    with pytest.raises(error) as inline:
        await run_inline(takes_a_number, given)  # type: ignore[call-overload]  # as above
    assert str(inline.value) == str(on_gateway.value)
