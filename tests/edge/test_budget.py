from __future__ import annotations

from pathlib import Path

import pytest

from edge.budget import Allowed, Budget
from edge.power import Power, look


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_limits_there_is_always_room() -> None:
    budget = Budget(Allowed(), Power, Clock())
    budget.spend(1000)
    assert budget.room() > 1000


def test_a_rate_is_kept_over_time() -> None:
    clock = Clock()
    budget = Budget(Allowed(rate=10.0), Power, clock)
    spent = 0
    for tick in range(1000):
        clock.now = tick * 0.01
        room = budget.room()
        budget.spend(room)
        spent += room
    assert spent == pytest.approx(100, abs=2)


def test_a_visit_that_took_more_than_there_was_is_paid_back() -> None:
    clock = Clock()
    budget = Budget(Allowed(rate=10.0), Power, clock)
    budget.spend(5)
    assert budget.room() == 0
    assert budget.wait_s() == pytest.approx(0.6)
    clock.now = 0.61
    assert budget.room() == 1


def test_nothing_is_drafted_on_battery_if_so_wished() -> None:
    clock = Clock()
    power = Power(on_battery=True)
    budget = Budget(Allowed(battery_rate=0.0), lambda: power, clock)
    assert budget.room() == 0
    power = Power(on_battery=False)
    clock.now = 10.0
    assert budget.room() > 0, "it is looked at again, and drafting goes on at the mains"


def test_a_hot_device_does_not_draft() -> None:
    assert Allowed(celsius=80.0).at(Power(celsius=81.0)) == 0.0
    assert Allowed(rate=5.0, celsius=80.0).at(Power(celsius=79.0)) == 5.0
    assert Allowed(rate=5.0, celsius=80.0).at(Power(celsius=None)) == 5.0


def test_the_lower_of_two_rates_counts_on_battery() -> None:
    assert Allowed(rate=5.0, battery_rate=20.0).at(Power(on_battery=True)) == 5.0
    assert Allowed(rate=50.0, battery_rate=20.0).at(Power(on_battery=False)) == 50.0


def supply(root: Path, name: str, **values: str) -> None:
    for key, value in values.items():
        file = root / "power_supply" / name / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value + "\n")


@pytest.mark.parametrize(("online", "status", "on_battery"), [("0", "Discharging", True), ("1", "Charging", False)])
def test_linux_says_whether_it_runs_on_battery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online: str, status: str, on_battery: bool
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    supply(tmp_path, "AC", type="Mains", online=online)
    supply(tmp_path, "BAT0", type="Battery", status=status)
    assert look(tmp_path).on_battery is on_battery


def test_the_hottest_sensor_counts_and_broken_ones_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for number, text in enumerate(("45000", "71500", "")):
        zone = tmp_path / "thermal" / f"thermal_zone{number}"
        zone.mkdir(parents=True)
        (zone / "temp").write_text(text)
    assert look(tmp_path) == Power(False, 71.5)
