from __future__ import annotations

from edge.figures import Arrivals


def test_itl_is_over_the_whole_answer_and_gaps_are_between_bursts() -> None:
    arrivals = Arrivals(asked=10.0)
    for now, count in [(10.5, 1), (10.75, 3), (11.75, 1), (12.0, 0), (12.5, 4)]:
        arrivals.arrived(now, count)
    assert arrivals.tokens == 9
    assert arrivals.ttft_s == 0.5
    assert arrivals.itl_s == 0.25
    assert arrivals.largest_gap_s == 1.0


def test_one_token_has_no_latency_between_tokens() -> None:
    arrivals = Arrivals(asked=0.0)
    assert (arrivals.ttft_s, arrivals.itl_s, arrivals.largest_gap_s) == (None, None, None)
    arrivals.arrived(1.0, 1)
    assert (arrivals.ttft_s, arrivals.itl_s, arrivals.largest_gap_s) == (1.0, None, None)


def test_a_rate_of_nothing_is_no_rate() -> None:
    arrivals = Arrivals(asked=0.0)
    figures = arrivals.figures(steps=0, accepted=0, agreed=0, compared=0, bytes_up=100)
    assert figures.acceptance_rate is None
    assert figures.accepted_per_step is None
    assert figures.bytes_up_per_token is None
    arrivals.arrived(1.0, 4)
    figures = arrivals.figures(steps=2, accepted=2, agreed=3, compared=4, bytes_up=100, bytes_down=60)
    assert (figures.acceptance_rate, figures.accepted_per_step, figures.steps_per_token) == (0.75, 1.0, 0.5)
    assert (figures.bytes_up_per_token, figures.bytes_down_per_token) == (25.0, 15.0)
