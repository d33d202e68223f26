from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.confidence import Calibration, Tail

CONFIDENCES = st.floats(0, 1)


def test_before_anything_is_known_the_drafter_is_believed() -> None:
    assert [round(Calibration().chance(c), 2) for c in (0.0, 0.05, 0.5, 0.99, 1.0)] == [0.05, 0.05, 0.55, 0.95, 0.95]


def test_each_range_learns_how_often_its_drafts_agree() -> None:
    calibration = Calibration()
    for i in range(400):
        calibration.add(0.55, agreed=i % 10 != 0)  # says one half, is right nine times of ten
        calibration.add(0.95, agreed=i % 2 == 0)
    assert calibration.chance(0.52) == pytest.approx(0.9, abs=0.05)
    assert calibration.chance(0.97) == pytest.approx(0.5, abs=0.05)
    assert calibration.chance(0.2) == pytest.approx(0.25)


def test_a_tail_survives_if_all_of_it_does_and_what_agreed_is_certain() -> None:
    tail = Tail()
    for confidence in (0.95, 0.55, 0.55):
        tail.draft(confidence)
    assert tail.survival == pytest.approx(0.95 * 0.55 * 0.55)
    tail.commit(1, contradicted=False, cleared=False)
    assert tail.survival == pytest.approx(0.55 * 0.55)
    tail.commit(1, contradicted=True, cleared=True)
    assert tail.survival == 1.0
    tail.draft(0.55)
    assert 0.5 < tail.survival < 0.6  # one agreed, one differed


@given(st.lists(CONFIDENCES, max_size=20), st.integers(0, 20))
def test_survival_is_a_chance_and_never_rises_with_depth(confidences: list[float], agreed: int) -> None:
    tail = Tail()
    survivals = [tail.survival]
    for confidence in confidences:
        tail.draft(confidence)
        survivals.append(tail.survival)
    assert survivals == sorted(survivals, reverse=True)
    assert all(0 <= survival <= 1 for survival in survivals)
    tail.commit(min(agreed, len(confidences)), contradicted=False, cleared=False)
    assert tail.survival >= survivals[-1] or agreed
