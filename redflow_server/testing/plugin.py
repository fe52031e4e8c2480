"""The pytest plugin. It is loaded into every run of pytest where redflow is installed, so it imports nothing before one
of its fixtures is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redflow_server.testing.gateways import EmbeddedGateways, RunningGateway


@pytest.fixture(scope="session")
def _redflow_gateways() -> Iterator[EmbeddedGateways]:
    try:
        from redflow_server.testing.gateways import EmbeddedGateways, EmbeddedStoreError
    except ImportError as error:
        pytest.fail(
            f"redflow's fixtures need its extra `dev`: pip install 'redflow-gateway[dev]' ({error})", pytrace=False
        )
    gateways = EmbeddedGateways()
    try:
        gateways.open()
    except EmbeddedStoreError as error:
        pytest.fail(str(error), pytrace=False)
    yield gateways
    gateways.close()


@pytest.fixture(scope="session")
def redflow_gateway(_redflow_gateways: EmbeddedGateways) -> Iterator[RunningGateway]:
    """A RunningGateway with an embedded store, for the whole session: what one test leaves behind another one sees."""
    with _redflow_gateways.running() as gateway:
        yield gateway


@pytest.fixture
def redflow(_redflow_gateways: EmbeddedGateways) -> Iterator[RunningGateway]:
    """A RunningGateway with a prefix of its own on the store of the session: nothing of other tests is to be seen.

    async def test_greeting(redflow):
        async with redflow.worker(greet), redflow.client() as client:
            assert await client.execute(greet, "Ada", timeout=10) == "hello Ada"
    """
    with _redflow_gateways.running() as gateway:
        yield gateway
