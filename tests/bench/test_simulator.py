from __future__ import annotations

import pytest

from bench.simulator import SETTINGS, Means, Setting, row, simulated


def test_there_are_twelve_settings_and_each_policy_meets_each_network() -> None:
    assert len(set(SETTINGS)) == 12
    assert {setting.policy for setting in SETTINGS} == {"cloud", "sync", "hold", "eager"}


def test_the_simulation_takes_the_times_that_were_measured() -> None:
    slow = simulated(Setting("cloud", 0.8, 20.0, 1), 50, 0.02, Means(0.05, 1.0, step_s=0.05))
    assert slow.itl_s == pytest.approx(0.05)
    assert slow.steps_per_token == 1.0
    drafted = simulated(Setting("eager", 1.0, 20.0, 2), 100, 0.02, Means(0.05, 1.0, step_s=0.05, draft_s=0.005))
    assert drafted.itl_s < 0.012


def test_the_error_is_the_larger_of_the_two() -> None:
    found = row(Setting("hold", 0.8, 20.0, 1), Means(0.020, 0.5), Means(0.021, 0.4))
    assert found["error"] == pytest.approx(-0.2)
