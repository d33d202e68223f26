"""The event simulation gives DESIGN §1's figures, and obeys what must hold for any pattern."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.events import Times, best_sync, simulate, simulate_cloud, simulate_sync


def pattern(alpha: float, length: int = 20000, seed: int = 1) -> list[bool]:
    uniform = np.random.default_rng(seed).random(length)
    return [bool(u < alpha) for u in uniform]


@pytest.mark.parametrize(
    ("alpha", "rtt_ms", "sync_ms", "hold_ms", "eager_ms"),
    [(0.8, 80, 43, 32, 24), (0.9, 80, 31, 21, 19), (0.8, 200, 72, 56, 28.5)],
)
def test_figures_of_the_design(alpha: float, rtt_ms: float, sync_ms: float, hold_ms: float, eager_ms: float) -> None:
    times = Times(0.010, 0.030, rtt_ms / 1e3)
    right = pattern(alpha)
    assert simulate_cloud(right, times).itl_s == pytest.approx(0.030, rel=1e-3)
    assert best_sync(right[:2000], times, longest=12)[1].itl_s * 1e3 == pytest.approx(sync_ms, rel=0.04)
    hold = simulate(right, times, "hold", abandon=True)
    eager = simulate(right, times, "eager", abandon=True)
    assert hold.itl_s * 1e3 == pytest.approx(hold_ms, rel=0.03)
    assert eager.itl_s * 1e3 == pytest.approx(eager_ms, rel=0.03)
    assert 0.39 <= hold.steps_per_token <= 0.50
    assert 0.60 <= eager.steps_per_token <= 0.96


@pytest.mark.parametrize(("rtt_ms", "above"), [(0, 0.09), (20, 0.05), (80, 0.03), (200, 0.02)])
@pytest.mark.parametrize("alpha", [0.5, 0.8, 0.9])
def test_the_closed_form_is_slightly_optimistic(alpha: float, rtt_ms: float, above: float) -> None:
    t_d, t_v = 0.010, 0.030
    formula = t_v - (t_v - t_d) * alpha ** ((rtt_ms / 1e3 + t_v) / (t_v - t_d))
    simulated = simulate(pattern(alpha), Times(t_d, t_v, rtt_ms / 1e3), "eager", abandon=True).itl_s
    assert formula * 0.985 <= simulated <= formula * (1 + above)


@pytest.mark.parametrize("rtt_s", [0.0, 0.08])
def test_synchronous_rounds_are_counted_exactly(rtt_s: float) -> None:
    # All right: each round gives γ + 1 tokens for γ·t_d + R + t_v; the first token comes without a draft.
    times = Times(0.01, 0.03, rtt_s)
    outcome = simulate_sync([True] * 5001, times, 4)
    assert outcome.itl_s == pytest.approx((4 * 0.01 + rtt_s + 0.03) / 5, rel=1e-3)
    assert outcome.steps_per_token == pytest.approx(1 / 5, rel=1e-2)


def test_a_call_that_can_be_abandoned_saves_at_most_a_draft_per_rollback() -> None:
    right, times = pattern(0.8), Times(0.010, 0.0301, 0.08)
    kept = simulate(right, times, "hold").itl_s
    abandoned = simulate(right, times, "hold", abandon=True).itl_s
    assert 0 < kept - abandoned <= 0.2 * 0.010


def test_a_draft_that_is_always_wrong_costs_eager_nothing() -> None:
    outcome = simulate([False] * 500, Times(0.01, 0.03, 0.02), "eager")
    assert outcome.itl_s == pytest.approx(0.03)
    assert outcome.steps_per_token == 1


def test_a_perfect_draft_is_as_fast_as_the_drafter() -> None:
    # Start-up apart: the first drafts arrive a round trip after the first step.
    assert simulate([True] * 5000, Times(0.01, 0.03, 0.08), "eager").itl_s == pytest.approx(0.01, rel=0.02)


@given(
    st.lists(st.booleans(), min_size=2, max_size=80),
    st.floats(0.001, 0.06),
    st.floats(0.001, 0.06),
    st.floats(0, 0.3),
    st.integers(1, 16),
    st.integers(1, 16),
)
def test_eager_is_never_slower_than_the_cloud_alone(
    right: list[bool], draft_s: float, step_s: float, rtt_s: float, window: int, block: int
) -> None:
    times = Times(draft_s, step_s, rtt_s)
    alone = simulate_cloud(right, times)
    eager = simulate(right, times, "eager", window=window, block=min(block, window))
    assert eager.itl_s <= alone.itl_s * (1 + 1e-9)
    assert eager.steps_per_token <= 1
    assert alone.steps_per_token == 1


@given(st.lists(st.booleans(), min_size=2, max_size=60), st.floats(0, 0.3), st.integers(1, 8))
def test_hold_always_ends_and_never_takes_more_steps_than_tokens(right: list[bool], rtt_s: float, block: int) -> None:
    outcome = simulate(right, Times(0.01, 0.03, rtt_s), "hold", window=8, block=block)
    assert outcome.steps_per_token <= 1
