"""What will be started and who will be killed, drawn from a seed: the same seed draws the same again, however the
processes are scheduled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.chaos.workflows import STEPS

GATEWAY: Final = "gateway"
STANDBY: Final = "second gateway"
WORKERS: Final = ("worker 1", "worker 2")
VICTIMS: Final = (
    (GATEWAY,),
    (WORKERS[0],),
    (WORKERS[1],),
    (GATEWAY, WORKERS[0]),
    (GATEWAY, *WORKERS),
)
"""What dies together. Every five rounds have each of them once."""


SHARES: Final = {"count": 8, "stumble": 4, "delegate": 4, "announce": 2, "fail": 3, "linger": 1, "oversee": 1}
"""How often each workflow is started."""
CANCELED: Final = ("linger", "oversee")


@dataclass(frozen=True)
class Start:
    """One run to start."""

    workflow: str
    number: int
    key: str | None
    """Its idempotency key: the start is then sent twice."""
    delay_s: float
    """How far ahead it becomes available; 0 for at once."""
    cancel_after_s: float | None
    """How long after its start it is canceled, if ever."""
    pause_s: float
    """How long to wait before the next start."""

    @property
    def end(self) -> object:
        """How it has to end: its output, the type of its failure, or `canceled`."""
        ends: dict[str, object] = {
            "count": self.number + STEPS,
            "stumble": self.number + 2,
            "delegate": self.number + STEPS + 2,
            "announce": 1,
            "fail": "ValueError",
            "linger": "canceled",
            "oversee": "canceled",
        }
        return ends[self.workflow]


@dataclass(frozen=True)
class Round:
    """Whom to kill, how long after work was seen in their hands, and for how long they stay away."""

    victims: tuple[str, ...]
    aim_s: float
    down_s: float


@dataclass(frozen=True)
class Plan:
    """All rounds of a seed."""

    seed: int
    rounds: int

    @property
    def gateways(self) -> tuple[str, ...]:
        """Those that there are."""
        return (GATEWAY,)

    def round(self, number: int) -> Round:
        """The fault of a round."""
        block, place = divmod(number, len(VICTIMS))
        order = Random(f"{self.seed} order {block}").sample(VICTIMS, len(VICTIMS))
        random = Random(f"{self.seed} fault {number}")
        return Round(order[place], aim_s=random.uniform(0, 0.3), down_s=random.uniform(0, 0.3))

    def start(self, number: int, index: int) -> Start:
        """The start of this index in a round. There is no last one: runs are started until the victims are back."""
        random = Random(f"{self.seed} start {number} {index}")
        workflow = random.choices(tuple(SHARES), tuple(SHARES.values()))[0]
        return Start(
            workflow,
            number=index,
            key=f"{number}-{index}" if random.random() < 0.5 else None,
            delay_s=random.uniform(0.1, 1.5) if random.random() < 0.15 else 0.0,
            cancel_after_s=random.uniform(0.0, 1.0) if workflow in CANCELED else None,
            pause_s=random.uniform(0.0, 0.04),
        )


class GatewayPlan(Plan):
    """Two gateways die in turn, and nothing else: always the one that has the workers, which go to the other one. So
    nobody waits for a gateway to start, and many moments can be tried.
    """

    @property
    def gateways(self) -> tuple[str, ...]:
        """Both."""
        return (GATEWAY, STANDBY)

    def start(self, number: int, index: int) -> Start:
        """Fewer of them: a round is to be short on two cores."""
        start = super().start(number, index)
        return replace(start, pause_s=5 * start.pause_s)

    def round(self, number: int) -> Round:
        """The next kill."""
        random = Random(f"{self.seed} fault {number}")
        victim = self.gateways[number % len(self.gateways)]
        return Round((victim,), aim_s=random.uniform(0, 0.3), down_s=random.uniform(0, 0.3))


PLANS: Final = {"all": Plan, "gateways": GatewayPlan}
"""By who is killed."""
