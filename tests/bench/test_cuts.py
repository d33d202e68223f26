from __future__ import annotations

import pytest

from bench.cuts import Settings, cutting_points, lost_times, run
from bench.report import Report


def test_a_cut_costs_the_longest_wait_behind_it_less_the_usual_one() -> None:
    times = [0.0, 0.1, 0.2, 0.7, 0.8, 1.2]
    assert lost_times(times, [0.25], 0.1) == pytest.approx([0.4])
    assert lost_times(times, [0.25, 0.75], 0.1) == pytest.approx([0.4, 0.3])


def test_cuts_before_and_behind_an_answer_cost_it_nothing() -> None:
    assert lost_times([1.0, 1.1], [0.5, 2.0], 0.1) == []


def test_the_cuts_are_spread_over_the_answers_and_the_same_each_time() -> None:
    settings = Settings(answers=10, cuts=20, tokens=30)
    points = cutting_points(settings)
    assert sum(map(len, points)) == 20
    assert all(1 <= token < 29 for found in points for token in found)
    assert points == cutting_points(settings)


async def test_cut_answers_are_the_undisturbed_ones() -> None:
    settings = Settings(answers=6, cuts=9, tokens=24, rtt_s=0.002, outage_s=0.01, step_s=0.002)
    found = await run(settings, Report(as_json=True))
    assert (found["cuts"], found["answers"], found["identical"]) == (9, 6, 6)
    assert found["lost_s_p50"] > 0.005
