from __future__ import annotations

from collections import Counter

import pytest

from app.engine.fairness import FairClock, expected_wait_s, may_wait


def test_a_tenant_of_twice_the_weight_is_charged_half() -> None:
    clock = FairClock()
    clock.enter("a")
    clock.enter("b")
    clock.charge("a", 6.0, 1.0)
    clock.charge("b", 6.0, 2.0)
    assert (clock.at("a"), clock.at("b")) == (6.0, 3.0)


def test_absence_earns_no_claim() -> None:
    clock = FairClock()
    clock.enter("a")
    clock.charge("a", 100.0, 1.0)
    clock.enter("b")
    assert clock.at("b") == pytest.approx(100.0)


def test_who_leaves_and_comes_back_keeps_its_charge() -> None:
    clock = FairClock()
    clock.enter("a")
    clock.enter("b")
    clock.charge("a", 5.0, 1.0)
    clock.leave("a")
    clock.enter("a")
    assert clock.at("a") == 5.0


def fill(waiting: Counter[str], tenant: str, weight: float = 1.0, places: int = 60) -> int:
    """How many streams of the tenant wait once it has sent as many as it can."""
    while may_wait(waiting, tenant, weight, places):
        waiting[tenant] += 1
    return waiting[tenant]


def test_one_tenant_fills_half_of_the_queue_and_the_next_finds_half_of_the_rest() -> None:
    waiting: Counter[str] = Counter()
    assert [fill(waiting, name) for name in ("a", "b", "c")] == [30, 15, 8]


def test_a_tenant_of_thrice_the_weight_may_fill_three_quarters() -> None:
    assert fill(Counter(), "heavy", 3.0) == 45


@pytest.mark.parametrize("weight", [0.01, 1.0, 1000.0])
def test_a_queue_of_one_place_takes_one_and_never_more_than_there_are(weight: float) -> None:
    waiting: Counter[str] = Counter()
    assert fill(waiting, "a", max(weight, 1.0), places=1) == 1
    assert fill(Counter(), "a", weight, places=10) <= 10
    assert not may_wait({"a": 10}, "b", weight, 10)


def test_a_stream_waits_behind_those_of_its_tenant() -> None:
    waiting, weights = {"a": 40, "b": 2}, {"a": 1.0, "b": 1.0, "c": 2.0}
    assert expected_wait_s(waiting, weights, "c", 0.5) == 0.0
    assert expected_wait_s({"a": 40}, {"a": 1.0}, "a", 0.5) == 20.0, "alone, it gets every slot that becomes free"
    assert expected_wait_s({"a": 40, "b": 2}, {"a": 1.0, "b": 1.0}, "b", 0.5) == 2.0
