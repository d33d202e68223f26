from __future__ import annotations

import pytest

from app.plan.hardware import fixed_load, roofline
from bench.capacity import Sweep, envelope, percentile, ratios


def test_a_light_load_without_drafts_runs_at_the_single_stream_step() -> None:
    sweep = Sweep("llama_70b_bf16", roofline("h100", "llama_70b_bf16", 2048), fixed_load(), (400,), 10.0)
    found = sweep.run("cloud", 400, seed=0)
    assert found["itl_p50_ms"] == pytest.approx(21.8, rel=0.03)
    assert found["steps_per_token"] == 1.0
    assert found["goodput_tok_s"] == found["throughput_tok_s"]


def test_drafts_at_a_light_load_shorten_the_itl_and_save_steps() -> None:
    sweep = Sweep("llama_70b_bf16", roofline("h100", "llama_70b_bf16", 2048), fixed_load(), (400,), 10.0)
    found = sweep.run("eager", 400, seed=0)
    assert found["itl_p50_ms"] < 20.0
    assert found["steps_per_token"] < 0.9


def test_ratios_and_envelope_compare_the_best_loads_and_the_worst() -> None:
    def at(policy: str, load: float, throughput: float, good: float) -> dict[str, float | str]:
        return {"policy": policy, "load": load, "throughput_tok_s": throughput, "goodput_at_1.2": good}

    rows = [
        at("cloud", 1, 100, 100),
        at("auto", 1, 99, 99),
        at("cloud", 2, 150, 20),
        at("auto", 2, 200, 190),
    ]
    assert ratios(rows, (1.2,)) == {"1.2": 1.9}
    assert envelope(rows) == 0.99


def test_percentiles_go_by_nearest_rank() -> None:
    assert [percentile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.5, 0.51, 1.0)] == [1.0, 2.0, 3.0, 4.0]
