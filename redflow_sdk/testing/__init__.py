"""Testing workflows in process, without a gateway and Redis.

from redflow_sdk.testing import run_inline

async def test_an_order_is_charged() -> None:
    result = await run_inline(receive_order, order, steps={"charge": "receipt-7"})
    assert result.output == Receipt("receipt-7")
"""

from redflow_sdk.testing._starts import EndlessPlay
from redflow_sdk.testing._world import EmittedEvent
from redflow_sdk.testing.inline import ExternalEvent, run_inline
from redflow_sdk.testing.result import InlineResult

__all__ = ["EmittedEvent", "EndlessPlay", "ExternalEvent", "InlineResult", "run_inline"]
