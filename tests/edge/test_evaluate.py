"""How a draft is judged: the counting by hand-made agreement, the measuring on the embedded pair."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("llama_cpp")
from edge.cli import app
from edge.errors import EdgeError
from edge.evaluate import alpha_by_position, log_softmax, mean_run
from edge.models import default_directory, pair
from edge.quantize import make_draft


def test_alpha_by_position_counts_runs_that_got_that_far() -> None:
    assert alpha_by_position([[True, False, True, True]], 3) == (3 / 4, 1 / 2, None)
    assert alpha_by_position([[True] * 5], 2) == (1.0, 1.0)


def test_mean_run_takes_whole_runs_only() -> None:
    assert mean_run([[True, True, False, True]], 2) == pytest.approx((2 + 1 + 0) / 3)
    assert mean_run([[True]], 2) == 0.0


def test_log_softmax_of_even_logits() -> None:
    assert log_softmax(np.zeros(8, np.float32), 3) == pytest.approx(-math.log(8))


@pytest.mark.model
def test_a_draft_in_fewer_bits_agrees_less_than_the_target_with_itself(tmp_path: Path) -> None:
    directory = default_directory().absolute()
    target = pair(directory).target
    made = make_draft(target, "Q2_K", tmp_path / "draft.gguf")
    assert made.made_bytes < made.source_bytes
    assert not made.requantised
    with pytest.raises(EdgeError, match="exists already"):
        make_draft(target, "Q2_K", made.path)
    arguments = ["evaluate", str(made.path), "--target", str(target), "--tokens", "48", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert 0 < found["alpha"] < 1
    assert found["perplexity"] > found["target_perplexity"] > 1
    assert found["alpha_by_position"][0] == pytest.approx(found["alpha"])


@pytest.mark.model
def test_a_quantised_source_is_said_to_be_one(tmp_path: Path) -> None:
    assert make_draft(pair(default_directory()).draft, "Q8_0", tmp_path / "again.gguf").requantised


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["quantize", "nothing-here"])
    assert result.exit_code == 1
    assert "No model" in result.stderr
    result = CliRunner().invoke(app, ["quantize", "x", "--bits", "7"])
    assert "there are 8, 6, 5, 4, 3, 2" in result.stderr
