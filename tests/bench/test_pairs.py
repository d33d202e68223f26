"""The model pairs that benches know by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.pairs import fetch, parts
from edge.models import DRAFT_NAME, TARGET_NAME


def test_an_unknown_pair_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose of smollm2, qwen"):
        fetch("llama", directory=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["compare", "--pair"], ["replay", "--pair"], ["quant", "--base"]])
def test_commands_say_which_pairs_there_are(command: list[str]) -> None:
    said = CliRunner().invoke(app, [*command, "llama"])
    assert said.exit_code == 2
    assert "smollm2, qwen" in said.output


def test_what_is_cached_is_not_fetched_again(tmp_path: Path) -> None:
    names = {
        "smollm2": (DRAFT_NAME, TARGET_NAME),
        "qwen": ("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf", "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf"),
    }
    for pair, files in names.items():
        for name in files:
            (tmp_path / name).touch()
        found = fetch(pair, directory=tmp_path)
        assert (found.draft.name, found.target.name) == files


def test_progress_counts_packages() -> None:
    assert (parts("qwen"), parts("smollm2")) == (28, 1)
