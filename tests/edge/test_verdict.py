from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol import latency
from edge.verdict import OPTIMISM, WORTH, Measured, judge


def measured(draft_ms: float, step_ms: float, rtt_ms: float, alpha: float) -> Measured:
    return Measured(draft_ms / 1000, step_ms / 1000, rtt_ms / 1000, alpha)


@pytest.mark.parametrize(
    ("numbers", "best", "words"),
    [
        (measured(10, 30, 20, 0.95), "eager", "policy eager"),
        (measured(17, 44, 0, 0.4), "hold", "policy hold"),
        (measured(40, 30, 20, 0.99), "cloud only", "40 ms to draft a token, the target 30 ms"),
        (measured(10, 30, 80, 0.3), "cloud only", "accepts 30% of the draft tokens"),
        (measured(10, 30, 400, 0.8), "cloud only", "round trip of 400 ms"),
    ],
)
def test_the_advice_follows_from_the_numbers(numbers: Measured, best: str, words: str) -> None:
    verdict = judge(numbers)
    assert verdict.best == best
    assert words in verdict.advice


def test_the_expected_times_are_the_formulas() -> None:
    verdict = judge(measured(10, 30, 80, 0.8))
    assert verdict.itl_s["cloud only"] == 0.03
    assert verdict.itl_s["eager"] == latency.eager(0.8, t_d=0.01, t_v=0.03, rtt=0.08)
    assert verdict.draft_length == latency.best_draft_length(0.8, t_d=0.01, t_v=0.03, rtt=0.08)


@given(draft=st.floats(0.1, 200), step=st.floats(1, 200), rtt=st.floats(0, 1000), alpha=st.floats(0, 1))
def test_nothing_is_recommended_that_is_not_clearly_faster(draft: float, step: float, rtt: float, alpha: float) -> None:
    numbers = measured(draft, step, rtt, alpha)
    verdict = judge(numbers)
    if verdict.best == "cloud only":
        assert verdict.gain == 0
        assert all(
            itl_s * (1 + OPTIMISM[scheme]) > (1 - WORTH) * numbers.step_s * 0.999999
            for scheme, itl_s in verdict.itl_s.items()
        )
        assert verdict.advice.startswith("Stay with the plain cloud")
    else:
        assert verdict.itl_s[verdict.best] * (1 + OPTIMISM[verdict.best]) <= (1 - WORTH) * numbers.step_s * 1.000001
        assert verdict.gain >= WORTH
        assert verdict.advice.startswith("Draft here")
