"""`bench figures`: tables land between their markers, plots are the same bytes for the same figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.figures import COLUMNS, beside, command, fill, table


def test_a_table_replaces_what_its_markers_hold_and_leaves_the_rest() -> None:
    text = "a\n<!-- figures edges -->\nold\n<!-- end -->\nb\n<!-- figures replay -->\nkept\n<!-- end -->\n"
    assert fill(text, {"edges": "new"}) == text.replace("old", "new")


def test_a_cell_that_was_not_measured_is_a_dash() -> None:
    assert table([{"x": 1.25, "y": None}], {"x": "X", "y": "Y"}).splitlines()[-1] == "| 1.250 | – |"


def test_a_width_without_a_speed_has_a_dash_there() -> None:
    row = dict.fromkeys(COLUMNS["quant"], 1.0) | {"tokens_per_s": None, "test": "yes"}
    assert "| – |" in table([row], COLUMNS["quant"])


def test_schemes_of_one_place_stand_in_one_row() -> None:
    place = {"network": "4g", "temperature": 0.0}
    rows = [
        {**place, "drafting": "none", "scheme": "cloud", "itl_ms": 30.0, "over_cloud": 1.0, "alpha": None},
        {
            **place,
            "drafting": "top-1",
            "scheme": "eager",
            "itl_ms": 15.0,
            "over_cloud": 0.5,
            "alpha": 0.9,
            "over_sim": 1.1,
        },
    ]
    (row,) = beside(rows)
    assert (row["cloud"], row["eager"], row["alpha"], row["eager_over_sim"]) == (30.0, 0.5, 0.9, 1.1)


def test_plots_are_made_for_both_pages_and_are_reproducible(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `bench`")
    rows = [
        {
            "network": network,
            "rtt_ms": rtt,
            "temperature": 0.0,
            "drafting": "none" if scheme == "cloud" else "top-1",
            "scheme": scheme,
            "itl_ms": 10.0 + rtt / 10,
            "itl_low_ms": 9.0,
            "itl_high_ms": 20.0,
        }
        for network, rtt in (("4g", 70.0), ("lan", 0.5))
        for scheme in ("cloud", "sync", "hold", "eager", "auto")
    ]
    (tmp_path / "compare.json").write_text(json.dumps({"rows": rows}))
    document = tmp_path / "results.md"
    document.write_text("<!-- figures compare -->\n<!-- end -->\n")
    made: list[dict[str, bytes]] = []
    for _ in range(2):
        command(tmp_path, document)
        made.append({path.name: path.read_bytes() for path in tmp_path.glob("*.svg")})
    assert made[0] == made[1]
    assert set(made[0]) == {"itl-compare-light.svg", "itl-compare-dark.svg"}
    assert len(document.read_text().splitlines()) == len(rows) + 4
    assert set(COLUMNS["compare"].values()) <= set(document.read_text().splitlines()[1].strip("| ").split(" | "))
