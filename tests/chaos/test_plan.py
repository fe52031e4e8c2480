"""A seed draws the same faults and the same load each time, and every kind of fault."""

from __future__ import annotations

import pytest

from tests.chaos.plan import CANCELED, GATEWAY, SHARES, STANDBY, VICTIMS, GatewayPlan, Plan


def test_a_seed_draws_the_same_again_and_another_seed_something_else() -> None:
    def drawn(seed: int) -> list[object]:
        plan = Plan(seed, 20)
        return [(plan.round(number), [plan.start(number, index) for index in range(50)]) for number in range(20)]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_what_is_drawn_for_a_round_does_not_depend_on_what_was_drawn_before() -> None:
    plan = Plan(7, 20)
    late = plan.round(13), plan.start(13, 5)
    for number in range(13):
        plan.round(number)
    assert (plan.round(13), plan.start(13, 5)) == late


@pytest.mark.parametrize("seed", range(20))
def test_every_five_rounds_have_each_kind_of_victim_once(seed: int) -> None:
    plan = Plan(seed, 20)
    victims = [plan.round(number).victims for number in range(plan.rounds)]
    for first in range(0, plan.rounds, len(VICTIMS)):
        assert sorted(victims[first : first + len(VICTIMS)]) == sorted(VICTIMS)


def test_the_load_has_every_workflow_with_and_without_keys_at_once_and_later() -> None:
    starts = [Plan(7, 1).start(0, index) for index in range(300)]
    assert {start.workflow for start in starts} == set(SHARES)
    assert {start.key is None for start in starts} == {True, False}
    assert {start.delay_s > 0 for start in starts} == {True, False}
    assert all((start.cancel_after_s is None) == (start.workflow not in CANCELED) for start in starts)


def test_when_gateways_die_they_do_so_in_turn_and_both_are_there() -> None:
    plan = GatewayPlan(7, 6)
    assert plan.gateways == (GATEWAY, STANDBY)
    assert [plan.round(number).victims for number in range(6)] == [(GATEWAY,), (STANDBY,)] * 3
    assert plan.round(3) == GatewayPlan(7, 6).round(3)
