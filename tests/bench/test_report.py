"""What a bench prints: a table for people, and JSON that a program finds on the last line."""

from __future__ import annotations

import json

import pytest

from bench.prompts import PROMPTS
from bench.report import Report, describe, machine, show


def test_json_is_the_last_line_of_standard_output_and_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(as_json=True)
    report.say("for people")
    report.table("title", [{"alpha": 0.5, "identical": True}])
    report.result({"rows": [{"alpha": 0.5}]})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"rows": [{"alpha": 0.5}]}
    assert captured.out.count("\n") == 1
    assert "for people" in captured.err
    assert "alpha" in captured.err


def test_without_json_the_table_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(as_json=False)
    report.table("title", [{"alpha": 0.5}, {"alpha": None}])
    report.result({"rows": []})
    out = capsys.readouterr().out
    assert "0.500" in out
    assert "–" in out
    assert "{" not in out


@pytest.mark.parametrize(
    ("value", "cell"), [(None, "–"), (True, "yes"), (3, "3"), (0.12345, "0.123"), (123.45, "123.5")]
)
def test_cells_are_short(value: object, cell: str) -> None:
    assert show(value) == cell


def test_the_machine_is_named() -> None:
    found = machine()
    assert found["cores"] >= 1
    assert str(found["cores"]) in describe(found)


def test_there_are_fifty_different_prompts() -> None:
    assert len(PROMPTS) == len(set(PROMPTS)) == 50
