from __future__ import annotations

import pytest

from app.engine.fairness import FairClock


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
