"""`bench serve`: the figures by their definitions, arrivals from a seed, and real requests to a real gateway."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench.gateway import Plan
from bench.serve import Settings, run
from bench.service import Objectives, Served, poisson, summary
from edge.errors import EdgeError


def test_the_figures_are_those_of_vllm_bench_serve() -> None:
    quick = Served(1.0, (1.2, 1.3, 1.6), tokens=5)
    slow = Served(2.0, (4.0,), tokens=1)
    row = summary([quick, slow], failed=1, duration_s=4.0, objectives=Objectives(ttft_s=0.5, tpot_s=0.1))
    assert quick.ttft_s == pytest.approx(0.2)
    assert quick.tpot_s == pytest.approx(0.1)  # two tokens may come together: over tokens, not over arrivals
    assert row["itl_mean_ms"] == pytest.approx((100 + 300) / 2)
    assert row["ttft_p50_ms"] == pytest.approx((200 + 2000) / 2)
    assert row["tpot_p99_ms"] == pytest.approx(100)
    assert row["e2el_mean_ms"] == pytest.approx((600 + 2000) / 2)
    assert row["requests_per_s"] == pytest.approx(0.5)
    assert row["tokens_per_s"] == pytest.approx(1.5)
    assert (row["completed"], row["failed"]) == (2, 1)


def test_goodput_counts_requests_that_keep_every_objective() -> None:
    served = Served(0.0, (0.2, 1.2), tokens=11)
    assert Objectives().kept(served)
    assert Objectives(ttft_s=0.2, tpot_s=0.11, e2el_s=1.2).kept(served)
    for broken in (Objectives(ttft_s=0.19), Objectives(tpot_s=0.09), Objectives(e2el_s=1.1)):
        assert not broken.kept(served)
    assert Objectives(tpot_s=0.01).kept(Served(0.0, (0.2,), tokens=1))  # a single token has no TPOT


def test_nothing_served_gives_a_row_without_times() -> None:
    row = summary([], failed=3, duration_s=1.0, objectives=Objectives())
    assert row["ttft_p99_ms"] is None
    assert (row["goodput_per_s"], row["failed"]) == (0, 3)


def test_arrivals_are_poisson_and_the_seeds_own() -> None:
    times = list(poisson(5.0, 2000, seed=1))
    gaps = [b - a for a, b in pairwise(times)]
    assert times[0] == 0
    assert sum(gaps) / len(gaps) == pytest.approx(0.2, rel=0.1)
    assert sum(gap > 0.2 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.04)
    assert times == list(poisson(5.0, 2000, seed=1)) != list(poisson(5.0, 2000, seed=2))
    assert list(poisson(float("inf"), 3, seed=1)) == [0, 0, 0]


async def test_requests_are_answered_by_a_gateway_in_a_process_of_its_own() -> None:
    advanced: list[None] = []
    settings = Settings(50.0, requests=6, tokens=5, plan=Plan(engine="scripted", step_s=0.004))
    row = await run(settings, lambda: advanced.append(None))
    assert (row["completed"], row["failed"], row["failures"]) == (6, 0, [])
    assert row["tokens"] == 6 * 5
    assert len(advanced) == 6
    assert row["goodput_per_s"] == row["requests_per_s"] > 0
    # Four steps of 4 ms behind the first token.
    assert row["tpot_p50_ms"] >= 4 * 0.9
    assert row["e2el_p50_ms"] >= row["ttft_p50_ms"]


async def test_a_model_that_there_is_not_fails_by_name() -> None:
    settings = Settings(50.0, requests=1, tokens=5, model="nobody's", plan=Plan(engine="scripted", step_s=0.004))
    with pytest.raises(EdgeError, match="nobody"):
        await run(settings)
