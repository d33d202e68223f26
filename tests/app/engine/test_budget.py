from __future__ import annotations

import itertools

import numpy as np
import pytest

from app.engine.budget import choose

STEP_MS = [35.0, 58.0, 60.0, 61.0, 72.0, 80.0, 90.0, 97.0]
"""Of 1 to 8 tokens: one draft costs more than it brings, three pay."""


def test_all_totals_are_tried_since_the_second_may_not_pay_while_the_fourth_does() -> None:
    gains = [[0.6, 0.55, 0.5]]
    assert choose(gains, 1.0, lambda n: STEP_MS[n], room=1).shares == (0,)
    assert choose(gains, 1.0, lambda n: STEP_MS[n], room=3).shares == (3,)


def test_where_time_is_linear_in_tokens_no_draft_is_checked() -> None:
    assert choose([[0.9, 0.8]], 1.0, lambda n: 19.0 * (1 + n), room=8).drafts == 0


def test_where_tokens_are_free_every_draft_is_checked() -> None:
    assert choose([[0.1, 0.01], [0.9]], 2.0, lambda n: 30.0, room=8).shares == (2, 1)


def test_room_goes_to_the_heaviest_and_likeliest() -> None:
    assert choose([[0.5, 0.4], [0.9, 0.8], [0.2]], 3.0, lambda n: 30.0, room=3).shares == (1, 2, 0)


def test_no_other_split_of_any_total_is_better() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        gains = [sorted(rng.random(3), reverse=True) for _ in range(3)]
        times = rng.uniform(20.0, 90.0, 10)
        best = choose(gains, 3.0, lambda n: float(times[n]), room=9)  # noqa: B023
        for shares in itertools.product(range(4), repeat=3):
            value = 3.0 + sum(sum(row[:share]) for row, share in zip(gains, shares, strict=True))
            assert value / times[sum(shares)] <= best.rate + 1e-9


def test_a_total_can_be_demanded() -> None:
    budget = choose([[0.5, 0.4]], 1.0, lambda n: 10.0 * (1 + n), room=8, exactly=2)
    assert budget.shares == (2,)
    assert budget.rate == pytest.approx(1.9 / 30.0)
