"""The formulas against the figures that DESIGN quotes, their limits, and plain counting."""

from __future__ import annotations

import math
from typing import TypedDict

import pytest

from edge.protocol import latency


class Times(TypedDict):
    t_d: float
    t_v: float


TIMES: Times = {"t_d": 0.010, "t_v": 0.030}

# Event simulation, ms per token: (alpha, rtt) -> synchronous, hold, eager; t_d 10 ms, t_v 30 ms.
SIMULATED = {(0.8, 0.080): (43, 32, 24), (0.9, 0.080): (31, 21, 19), (0.8, 0.200): (72, 56, 28.5)}


@pytest.mark.parametrize(("alpha", "rtt"), SIMULATED)
def test_synchronous_at_its_best_draft_length_is_what_the_simulation_gave(alpha: float, rtt: float) -> None:
    gamma = latency.best_draft_length(alpha, rtt=rtt, **TIMES)
    got = 1000 * latency.synchronous(alpha, gamma, rtt=rtt, **TIMES)
    assert got == pytest.approx(SIMULATED[alpha, rtt][0], abs=0.5)


@pytest.mark.parametrize(("alpha", "rtt"), SIMULATED)
def test_hold_is_a_floor_at_most_17_percent_low(alpha: float, rtt: float) -> None:
    got = 1000 * latency.hold(alpha, rtt=rtt, window=32, block=3, **TIMES)
    simulated = SIMULATED[alpha, rtt][1]
    assert 0.83 * simulated <= got <= simulated


@pytest.mark.parametrize(("alpha", "rtt"), SIMULATED)
def test_eager_equals_the_simulation_from_80_ms_on(alpha: float, rtt: float) -> None:
    got = 1000 * latency.eager(alpha, rtt=rtt, **TIMES)
    assert got == pytest.approx(SIMULATED[alpha, rtt][2], abs=0.5)


def test_the_embedded_pair_gains_what_the_main_job_promises() -> None:
    """α = .97, a draft token half a step: .54 of the cloud's time at RTT 0, .60 at 80 ms (t_v about 35 ms)."""
    ratio = {rtt: latency.eager(0.97, t_d=0.0175, t_v=0.035, rtt=rtt) / 0.035 for rtt in (0.0, 0.080)}
    assert ratio[0.0] == pytest.approx(0.53, abs=0.01)
    assert ratio[0.080] == pytest.approx(0.59, abs=0.01)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("gamma", [0, 1, 2, 7])
def test_expected_tokens_count_every_way_a_round_can_end(alpha: float, gamma: int) -> None:
    """A round accepts exactly a tokens with α^a(1 − α), all γ with α^γ."""
    counted = sum(a * alpha**a * (1 - alpha) for a in range(gamma)) + gamma * alpha**gamma
    assert latency.expected_accepted(alpha, gamma) == pytest.approx(counted)
    assert latency.expected_tokens(alpha, gamma) == pytest.approx(counted + 1)


def test_expected_tokens_is_leviathans_equation_1() -> None:
    assert latency.expected_tokens(0.8, 5) == pytest.approx((1 - 0.8**6) / (1 - 0.8))


def test_drafting_nothing_is_a_round_trip_for_every_token() -> None:
    assert latency.synchronous(0.9, 0, rtt=0.05, **TIMES) == pytest.approx(0.080)


@pytest.mark.parametrize(("alpha", "rtt"), [(0.0, 0.08), (0.5, 0.0), (0.8, 0.08), (0.99, 0.2), (1.0, 0.08)])
def test_the_best_draft_length_beats_its_neighbours(alpha: float, rtt: float) -> None:
    best = latency.best_draft_length(alpha, rtt=rtt, **TIMES)
    cost = [latency.synchronous(alpha, gamma, rtt=rtt, **TIMES) for gamma in range(latency.LONGEST + 1)]
    assert cost[best] == min(cost)
    assert best == (0 if alpha == 0 else best)


def test_hold_without_rejections_runs_at_its_slowest_stage() -> None:
    assert latency.hold(1.0, rtt=0.080, window=32, block=3, **TIMES) == pytest.approx(0.010)  # drafting
    assert latency.hold(1.0, rtt=0.080, window=32, block=1, **TIMES) == pytest.approx(0.030)  # verifying one by one
    assert latency.hold(1.0, rtt=0.080, window=4, block=3, **TIMES) == pytest.approx(0.140 / 4)  # the window


def test_hold_without_acceptance_is_a_round_trip_for_every_token() -> None:
    assert latency.hold(0.0, rtt=0.080, window=32, **TIMES) == pytest.approx(0.110)


@pytest.mark.parametrize("rtt", [0.0, 0.02, 0.08, 0.2, 10.0])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("t_d", [0.001, 0.01, 0.0299999, 0.03, 0.1])
def test_eager_is_never_slower_than_the_cloud_nor_faster_than_drafting(alpha: float, rtt: float, t_d: float) -> None:
    got = latency.eager(alpha, t_d=t_d, t_v=0.030, rtt=rtt)
    assert min(t_d, 0.030) <= got <= latency.cloud(0.030)


def test_eager_with_perfect_drafts_runs_at_the_drafters_pace() -> None:
    assert latency.eager(1.0, rtt=0.080, **TIMES) == pytest.approx(0.010)


def test_catching_up_takes_a_round_trip_and_a_step_of_matches() -> None:
    assert latency.catch_up_tokens(rtt=0.080, **TIMES) == pytest.approx(5.5)
    with pytest.raises(ValueError, match="never catch up"):
        latency.catch_up_tokens(t_d=0.03, t_v=0.03, rtt=0.0)


def test_the_balance_point_equals_the_stages() -> None:
    gamma = latency.balanced_draft_length(t_d=0.010, t_v=0.100, rtt=0.030)
    assert gamma * 0.010 + 0.030 == pytest.approx(0.100)
    assert latency.balanced_draft_length(t_d=0.010, t_v=0.030, rtt=0.080) == 0  # the network alone takes longer


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan])
def test_an_acceptance_rate_that_is_no_probability_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="acceptance rate"):
        latency.eager(alpha, rtt=0.0, **TIMES)
    with pytest.raises(ValueError, match="acceptance rate"):
        latency.synchronous(alpha, 3, rtt=0.0, **TIMES)


def test_impossible_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        latency.expected_accepted(0.5, -1)
    with pytest.raises(ValueError, match="at least 1"):
        latency.hold(0.5, rtt=0.0, window=0, **TIMES)
