"""What counts as growth, on planted samples."""

from __future__ import annotations

from collections.abc import Sequence

from tests.leaks.flatness import Sample, grown, growth


def _samples(values: Sequence[float], quantity: str = "tasks") -> list[Sample]:
    return [Sample({quantity: value}, {}) for value in values]


def test_what_stays_as_it_was_is_flat_whatever_it_jumps_to_in_between() -> None:
    assert growth([10, 10, 90, 10, 10, 10, 10, 10, 10, 10]) == 0
    assert not list(grown("it", _samples([10, 12, 10, 12, 10, 12, 10, 12, 10, 12])))


def test_one_more_in_each_round_is_growth() -> None:
    [found] = grown("gateway", _samples(range(10, 20)))
    assert found.startswith("tasks of gateway grew by 9, of which 1 are allowed")


def test_memory_that_goes_up_and_down_within_the_bound_is_flat_and_what_climbs_is_not() -> None:
    noise = _samples([60_000, 64_000, 60_500, 63_000, 61_000, 60_000, 64_000, 61_500, 60_000, 62_000], "rss_kb")
    assert not list(grown("it", noise))
    climbing = _samples(range(60_000, 70_000, 1000), "rss_kb")
    assert list(grown("it", climbing))
    assert not list(grown("it", climbing, lost_kb=8000))


def test_a_single_key_that_is_left_in_each_round_is_growth() -> None:
    assert list(grown("redis", _samples(range(10), "keys")))
