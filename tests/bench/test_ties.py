"""A tie is what the measured noise explains, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from app.engine.model import Model
from app.engine.scripted import ScriptedModel
from bench.noise import Sample, alone, measure, plain_row, prefix_row, ragged, rejected, row_error, together
from bench.ties import Judge
from edge.protocol.frames import Sampling
from edge.script import Script, ScriptVocabulary

PROMPT = tuple(b"who rides in the wind?")
GREEDY = Sampling(temperature=0)


@pytest.fixture
def script() -> Script:
    return Script(ScriptVocabulary())


@pytest.fixture
def model(script: Script) -> Model:
    return ScriptedModel(script, 8)


def best_two(row: np.ndarray) -> tuple[int, int, float]:
    first, second = (int(i) for i in np.argsort(-row)[:2])
    return first, second, float(row[first] - row[second])


def test_a_gap_within_the_noise_is_a_tie_and_a_larger_one_a_fault(script: Script, model: Model) -> None:
    output = tuple(script.greedy(PROMPT, 12))
    sample = Sample(PROMPT, output)
    first, second, gap = best_two(script.logits(script.key(PROMPT), 8, output[7]))
    assert first == output[8]
    found = [*output[:8], second]
    # Each logit may be off by the noise, so a difference of two by twice as much.
    tie = Judge(model, noise=gap / 2 * 1.01).judge(0, "case", sample, GREEDY, found, 8)
    fault = Judge(model, noise=gap / 2 * 0.99).judge(0, "case", sample, GREEDY, found, 8)
    assert tie.tie
    assert not fault.tie
    assert tie.distance == pytest.approx(gap / 2, rel=1e-3)
    assert (tie.position, tie.expected, tie.found) == (8, first, second)


def test_an_output_that_ends_too_soon_is_a_fault_at_any_noise(model: Model, script: Script) -> None:
    output = tuple(script.greedy(PROMPT, 5))
    assert not Judge(model, noise=1e9).judge(0, "case", Sample(PROMPT, output), GREEDY, output[:3], 3).tie


def test_tokens_that_may_not_end_the_output_yet_are_judged_without_the_end(model: Model, script: Script) -> None:
    output = tuple(script.greedy(PROMPT, 4))
    end = script.vocabulary.end
    judge = Judge(model, noise=63, min_tokens=100)
    assert not judge.judge(0, "case", Sample(PROMPT, output), GREEDY, [*output[:2], end], 2).tie
    judge = Judge(model, noise=63)
    assert judge.judge(0, "case", Sample(PROMPT, output), GREEDY, [*output[:2], end], 2).tie


def test_a_model_whose_rows_depend_on_nothing_else_has_no_noise(model: Model, script: Script) -> None:
    samples = [Sample(tuple(b"prompt %d" % i), tuple(script.greedy(tuple(b"prompt %d" % i), 9))) for i in range(3)]
    noise = measure(model, samples)
    assert noise.largest == 0
    assert noise.rows == sum(map(len, noise.errors.values()))
    assert len(noise.errors) == 10
    rows = alone(model, samples[0], 4)
    assert [int(row.argmax()) for row in rows] == list(samples[0].output)
    assert all(np.array_equal(a, b) for a, b in zip(rows, together(model, samples, 2)[0], strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(rows, ragged(model, samples)[0], strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(rows, rejected(model, samples)[0], strict=True))
    prefix = Sample(samples[0].prompt, samples[0].output[:5])
    assert int(plain_row(model, prefix).argmax()) == samples[0].output[5]
    assert int(prefix_row(model, prefix).argmax()) == samples[0].output[5]


def test_the_error_of_a_row_is_half_the_range_of_what_moved() -> None:
    reference = np.linspace(0, 1, 1000, dtype=np.float32)
    row = reference + np.float32(5)  # a common shift decides nothing
    assert row_error(row, reference) == pytest.approx(0, abs=1e-6)
    row[-1] += np.float32(0.25)
    assert row_error(row, reference) == pytest.approx(0.125, abs=1e-6)
    row[0] += np.float32(50)  # far below the leaders
    assert row_error(row, reference) == pytest.approx(0.125, abs=1e-6)
