"""`bench schemes` measures the product itself: every column that the issue names, from real streams."""

from __future__ import annotations

import pytest

from bench.schemes import Settings, run
from edge.protocol import latency

KEYS = {
    "alpha",
    "rtt_ms",
    "t_d_ms",
    "t_v_ms",
    "cloud_ms",
    "sync_ms",
    "hold_ms",
    "eager_ms",
    "eager_sim_ms",
    "eager_formula_ms",
    "hold_steps_per_token",
    "eager_steps_per_token",
}


async def test_a_row_has_every_figure_and_the_schemes_differ_as_they_must() -> None:
    settings = Settings(t_d_s=0.002, t_v_s=0.006, run_s=0.3)
    (row,) = await run(settings, [0.9], [10.0])
    assert set(row) >= KEYS
    assert (row["alpha"], row["rtt_ms"], row["t_d_ms"], row["t_v_ms"]) == (0.9, 10.0, 2.0, 6.0)
    formula = latency.eager(0.9, t_d=0.002, t_v=0.006, rtt=0.010)
    assert row["eager_formula_ms"] == pytest.approx(formula * 1e3)
    # However slow the machine: nobody waits for a draft in vain, and held steps bring more than a token each.
    assert row["hold_steps_per_token"] < 1
    assert row["eager_steps_per_token"] <= 1
    # A step can't be faster than it was told to be.
    assert row["cloud_ms"] >= 6.0 * 0.9
