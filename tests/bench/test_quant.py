"""`bench quant`: what its rows and its sentence say, and that torch and llama.cpp read one model alike."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.king_james import Verse, joined, split
from bench.quant import agreed, along, made, probabilities, torch_python
from bench.quantised import Reading, claim, row
from bench.windows import WINDOW, windows
from edge.errors import EdgeError
from edge.evaluate import Reader


def reading(**changed: Any) -> Reading:
    given: dict[str, Any] = {
        "base": "small",
        "never_4_bit": True,
        "weights": "W4A16",
        "weight_bits": 4.5,
        "activation_bits": 16,
        "by": "rounded, torch",
        "perplexity": 12.0,
        "overlap": 0.9,
        "agreed": [[True] * 9 + [False], [True] * 10],
        "bytes": 3 * 2**20,
    }
    return Reading(**{**given, **changed})


def test_a_row_counts_agreement_and_compares_with_its_base() -> None:
    found = row(reading(), reading(perplexity=10.0))
    assert (found["alpha"], found["places"], found["mib"]) == (0.95, 20, 3)
    assert found["over_base"] == pytest.approx(1.2)
    assert found["alpha_low"] == pytest.approx(0.9)
    assert found["alpha_high"] == pytest.approx(1.0)
    # Runs of 8 from places 0 to 2: 8, 8 and 7 right, then 8 three times.
    assert found["expected_accepted"] == pytest.approx(47 / 6)
    assert found["test"] == "yes"


def test_a_base_that_was_in_4_bits_is_no_test() -> None:
    assert row(reading(never_4_bit=False), reading())["test"] == "no: base was 4-bit"


@pytest.mark.parametrize(
    ("four", "three", "two", "held", "says"),
    [
        (0.95, 0.8, 0.7, True, ("holds:", "is high", "is not")),
        (0.95, 0.92, 0.7, False, ("holds in part:", "is clearly lower, yet still high", "is not")),
        (0.95, 0.945, 0.92, False, ("doesn't hold:", "is not clearly lower")),
        (0.85, 0.8, 0.7, False, ("doesn't hold:", "is not high (0.9 or more)")),
    ],
)
def test_the_sentence_says_which_half_of_the_claim_held(
    four: float, three: float, two: float, held: bool, says: tuple[str, ...]
) -> None:
    def found(weights: str, alpha: float) -> dict[str, Any]:
        return {"weights": weights, "alpha": alpha, "alpha_low": alpha - 0.01, "alpha_high": alpha + 0.01}

    holds, sentence = claim(found("W4A16", four), [found("W3A16", three), found("W2A16", two)])
    assert holds is held
    for part in says:
        assert part in sentence


def test_chapters_are_whole_and_every_twentieth_is_kept_back() -> None:
    texts = joined([Verse("A", 1, "one"), Verse("A", 1, "two"), Verse("A", 2, "three"), Verse("B", 2, "four")])
    assert texts == ["one two", "three", "four"]
    train, kept = split([str(n) for n in range(45)])
    assert kept == ["10", "30"]
    assert len(train) == 43
    assert not set(train) & set(kept)


def test_windows_overlap_by_half_and_are_whole() -> None:
    found = list(windows(range(WINDOW * 2 + 5)))
    assert [w[0] for w in found] == [0, WINDOW // 2, WINDOW]
    assert {len(w) for w in found} == {WINDOW}


def test_probabilities_stand_great_logits() -> None:
    rows = probabilities([np.array([1000.0, 1000.0, -1000.0], np.float32)])
    np.testing.assert_allclose(rows, [[0.5, 0.5, 0.0]])


def test_torch_and_llama_cpp_read_the_same_model_alike(tmp_path: Path) -> None:
    """The weights that torch wrote give its own results in llama.cpp: tokenizer, rotation and norms agree."""
    try:
        python = torch_python()
    except EdgeError:
        pytest.skip("needs torch: make install-vllm")
    words = [f"{a} {b} went up to the {c}." for a in ("Adam", "Ruth") for b in ("son", "kin") for c in ("hill", "sea")]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(words * 300), encoding="utf-8")
    command = [python, "-m", "bench.tiny_lm", str(text), str(tmp_path), "--steps", "12"]
    trained = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    losses = [json.loads(line)["loss"] for line in trained.stdout.splitlines()]
    assert losses[-1] < losses[0]
    reader = Reader(made(tmp_path / "tiny-lm-F32.gguf", "F16", tmp_path), 1)
    ids = reader.model.vocabulary.encode("\n".join(words * 20))
    prompt = ids[:20]
    answer = reader.greedy(prompt, 30)
    perplexity, overlap = along(reader, reader, ids[: WINDOW * 2])
    assert overlap == pytest.approx(1)
    assert all(agreed(reader, [(prompt, answer)])[0])
    reader.close()
    task = {"text": ids[: WINDOW * 2], "answers": [[prompt, answer]], "widths": [[16, 16], [2, 4]]}
    command = [python, "-m", "bench.fake_quant", str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, input=json.dumps(task))  # noqa: S603
    same, fewer = (json.loads(line) for line in said.stdout.splitlines())
    assert math.exp(same["losses"]) == pytest.approx(perplexity, rel=0.01)
    assert sum(same["agreed"][0]) >= len(answer) - 1  # F16 and its order of adding may decide one close call
    assert fewer["losses"] != pytest.approx(same["losses"], rel=1e-3)
    assert fewer["bytes"] < same["bytes"] / 2
