"""Typical acceptance, the rule of draft-only streams."""

from __future__ import annotations

import numpy as np
import pytest

from edge.protocol.verifying import TYPICAL_DELTA, TYPICAL_EPSILON, accept, plausible


def logits(*probabilities: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.log(np.array(probabilities, np.float64)).astype(np.float32)


def test_where_the_target_is_sure_only_its_own_token_passes() -> None:
    row = logits(0.97, 0.02, 0.01)
    assert [plausible(row, token) for token in range(3)] == [True, False, False]


def test_where_it_is_not_many_pass() -> None:
    row = np.zeros(100, np.float32)
    assert plausible(row, 7), "1% of a flat distribution is as likely as any"
    row = np.zeros(100, np.float32)
    row[7] = -3
    assert not plausible(row, 7)


@pytest.mark.parametrize("p", [0.05, 0.085, 0.095, 0.3])
def test_the_threshold_is_medusas(p: float) -> None:
    probabilities = np.array([p, *[(1 - p) / 3] * 3])
    entropy = -(probabilities * np.log(probabilities)).sum()
    expected = p >= min(TYPICAL_EPSILON, TYPICAL_DELTA * np.exp(-entropy))
    assert plausible(logits(*probabilities), 0) == expected


def test_a_token_without_probability_never_passes() -> None:
    assert not plausible(np.array([0, -np.inf], np.float32), 1)


def test_without_a_bonus_a_run_ends_with_its_candidates() -> None:
    assert accept([1, 2], lambda i: [1, 2, 3][i], bonus=False) == [1, 2]
    assert accept([1, 2], lambda i: [1, 9, 3][i], bonus=False) == [1, 9]
    assert accept([], lambda i: 5, bonus=False) == []
