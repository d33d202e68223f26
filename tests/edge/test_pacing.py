from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.pacing import AcceptanceRate, Average, Measured, pace

SECONDS = st.none() | st.floats(0, 10)
RATES = st.none() | st.floats(0, 1)


def test_the_window_covers_what_is_drafted_until_the_answer() -> None:
    measured = Measured(rtt_s=0.080, draft_s=0.010, step_s=0.030, acceptance_rate=0.95)
    assert pace(measured, "eager", bound=64).window == 11 + 3 + 1  # (R + t_v) / t_d, a step's worth, one in the making


def test_the_window_ends_where_drafts_hardly_survive() -> None:
    slow = Measured(rtt_s=0.2, draft_s=0.01, step_s=0.03)
    deep = {
        rate: pace(Measured(slow.rtt_s, slow.draft_s, slow.step_s, rate), "eager", bound=64).window
        for rate in (0.0, 0.5, 0.8, 1.0)
    }
    assert deep == {0.0: 1, 0.5: 3, 0.8: 10, 1.0: 27}


@given(rtt=SECONDS, draft=SECONDS, step=SECONDS, rate=RATES, bound=st.integers(1, 256))
def test_it_is_never_more_than_may_be_held_and_never_nothing(
    rtt: float | None, draft: float | None, step: float | None, rate: float | None, bound: int
) -> None:
    for policy in ("eager", "hold", "auto", "sync"):
        chosen = pace(Measured(rtt, draft, step, rate), policy, bound=bound)
        assert 1 <= chosen.block <= chosen.window <= bound
        assert 1 <= chosen.turn <= chosen.window


def test_asking_for_more_survival_shortens_the_window() -> None:
    measured = Measured(rtt_s=0.2, draft_s=0.01, step_s=0.03, acceptance_rate=0.8)
    windows = [pace(measured, "eager", bound=64, least_survival=least).window for least in (0.0, 0.1, 0.4, 1.0)]
    assert windows == [27, 10, 4, 1]


def test_sync_sends_whole_rounds() -> None:
    chosen = pace(Measured(), "sync", bound=64, draft_length=6)
    assert (chosen.window, chosen.block) == (6, 6)
    assert pace(Measured(), "eager", bound=64).block == 1


@pytest.mark.parametrize(("draft_s", "turn"), [(None, 1), (0.01, 1), (0.0002, 5), (0.00001, 16)])
def test_only_a_fast_drafter_proposes_several_tokens_a_visit(draft_s: float | None, turn: int) -> None:
    assert pace(Measured(0.1, draft_s, 0.03, 1.0), "eager", bound=64).turn == turn


def test_the_acceptance_rate_follows_a_change_and_is_not_upset_by_one_miss() -> None:
    rate = AcceptanceRate()
    assert rate.value == pytest.approx(0.8)
    rate.add(0, 1)
    assert rate.value > 0.7
    rate.add(0, 300)
    assert rate.value < 0.05
    rate.add(300, 0)
    assert rate.value > 0.95


def test_averages_start_at_the_first_sample() -> None:
    average = Average(weight=0.5)
    assert average.value is None
    average.add(4.0)
    average.add(2.0)
    assert average.value == 3.0
