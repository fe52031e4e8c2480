"""Orders to stop that came before their assignment are kept as long as it may be under way, and no longer."""

from __future__ import annotations

import pytest

from redflow_server.domain.leases import Stop, StopReason
from redflow_server.engine.stops import EarlyStops

LONG_S = 60.0


def a_stop(token: str, message: str = "") -> Stop:
    return Stop(token, StopReason.USER, message)


def test_an_order_is_taken_once_by_the_lease_that_it_is_about() -> None:
    stops = EarlyStops(LONG_S)
    stops.keep(a_stop("a"))
    stops.keep(a_stop("b"))

    assert stops.take("c") is None
    assert stops.take("b") == a_stop("b")
    assert stops.take("b") is None
    assert stops.take("a") == a_stop("a")


def test_of_two_orders_for_a_lease_the_later_one_counts() -> None:
    stops = EarlyStops(LONG_S)
    stops.keep(a_stop("a", "first"))
    stops.keep(a_stop("a", "second"))
    assert stops.take("a") == a_stop("a", "second")
    assert stops.take("a") is None


def test_an_order_whose_assignment_does_not_come_is_forgotten() -> None:
    stops = EarlyStops(keep_s=0.0)
    stops.keep(a_stop("a"))
    stops.keep(a_stop("b"))
    assert stops.take("a") is None


def test_not_more_than_so_many_are_kept_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redflow_server.engine.stops.MAX_KEPT", 3)
    stops = EarlyStops(LONG_S)
    for token in "abcde":
        stops.keep(a_stop(token))
    assert [token for token in "abcde" if stops.take(token)] == ["c", "d", "e"]
