from __future__ import annotations

import json
import re

from app.config import ROOT
from app.engine.base import Load
from app.telemetry import Metrics


def _expressions() -> list[str]:
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_the_dashboard_names_only_metrics_and_labels_that_exist() -> None:
    metrics = Metrics(lambda: Load(0, 0, 0, 0, 0.0), lambda: 0)
    exist: set[str] = set()
    for family in metrics.registry.collect():
        exist |= {family.name, f"{family.name}_total", f"{family.name}_bucket"}
    named = {name for expression in _expressions() for name in re.findall(r"paceline_\w+", expression)}
    assert len(named) >= 12
    assert named <= exist
    labels = {"status", "tenant", "kind", "le", "position", "what", "direction"}
    used = {label for e in _expressions() for by in re.findall(r"by \(([^)]*)\)", e) for label in by.split(", ")}
    assert used <= labels


def test_drafts_are_counted_by_place_and_tenants_share_a_label_when_there_are_many() -> None:
    metrics = Metrics(lambda: Load(0, 0, 0, 0, 0.0), lambda: 0, tenants=1)
    metrics.checked(3, 1)
    read = metrics.registry.get_sample_value
    assert read("paceline_drafts_checked_total", {"position": "3"}) == 1
    assert read("paceline_drafts_accepted_total", {"position": "1"}) == 1
    assert read("paceline_drafts_accepted_total", {"position": "2"}) is None
    assert [metrics.tenant(name) for name in ("", "a", "b", "a")] == ["", "a", "other", "a"]
