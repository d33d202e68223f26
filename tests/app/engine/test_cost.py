from __future__ import annotations

import numpy as np
import pytest

from app.engine.cost import CostModel

MEASURED_MS: dict[int, float] = {1: 35, 2: 58, 3: 60, 4: 61, 8: 97, 16: 117}
"""Steps of an F16 model on one CPU core: not convex."""


def model_of(steps_ms: dict[int, float], times: int = 20) -> CostModel:
    cost = CostModel()
    for _ in range(times):
        for tokens, ms in steps_ms.items():
            cost.observe(tokens, 100, ms / 1000)
    return cost


def test_sizes_that_were_seen_cost_what_they_took_however_unevenly() -> None:
    cost = model_of(MEASURED_MS)
    for tokens, ms in MEASURED_MS.items():
        assert cost.predict(tokens, 100) == pytest.approx(ms / 1000, rel=0.01)


def test_a_size_between_two_others_is_interpolated() -> None:
    assert model_of({4: 40.0, 8: 80.0}).predict(6, 100) == pytest.approx(0.06)


def test_beyond_the_largest_size_the_line_goes_on() -> None:
    cost = model_of({n: max(30.0, n) for n in (1, 8, 16, 32, 64, 128)})
    assert cost.predict(256, 100) == pytest.approx(0.256, rel=0.1)


def test_before_the_first_step_nothing_is_known() -> None:
    assert CostModel().predict(3, 0) == 0.0
    assert CostModel().error() is None


def test_the_price_of_context_is_learned_within_a_size() -> None:
    cost = CostModel()
    for i in range(400):
        context = 100 + 40 * (i % 50)
        cost.observe(4, context, 0.03 + 2e-6 * context)
        cost.observe(8, 500, 0.04 + 2e-6 * 500)
    assert cost.context_s == pytest.approx(2e-6, rel=0.1)
    assert cost.predict(8, 4000) == pytest.approx(0.048, rel=0.05)


def test_a_pause_of_the_machine_is_not_taken_for_the_models_cost() -> None:
    cost = model_of({4: 40.0})
    cost.observe(4, 100, 2.0)
    assert cost.predict(4, 100) < 0.045


def test_a_lasting_change_is_learned() -> None:
    cost = model_of({4: 40.0})
    for _ in range(200):
        cost.observe(4, 100, 0.08)
    assert cost.predict(4, 100) == pytest.approx(0.08, rel=0.05)


def test_with_noise_of_3_percent_nine_of_ten_predictions_are_within_10() -> None:
    rng = np.random.default_rng(0)
    cost = CostModel()
    for i in range(2000):
        tokens, context = int(rng.integers(1, 40)), 100 + i
        true_s = max(0.03, 0.004 * tokens) + 1e-6 * context
        cost.observe(tokens, context, true_s * rng.normal(1.0, 0.03))
    error = cost.error()
    assert error is not None
    assert error < 0.1


def test_large_sizes_share_a_row_and_each_still_has_its_own_price() -> None:
    cost = model_of({n: n for n in (36, 40, 42, 44, 48, 52, 56, 60, 68)}, times=60)
    for tokens in (48, 50, 53):  # all of one row
        assert cost.predict(tokens, 100) == pytest.approx(tokens / 1000, rel=0.03)
