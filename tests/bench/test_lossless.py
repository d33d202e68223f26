"""The lossless comparison: it passes on the real model, and it can fail."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import numpy as np
import pytest

from app.engine.scripted import ScriptedEngine, ScriptedModel
from bench.hybrid import KINDS
from bench.lossless import POLICIES, RULES, TIES_ALLOWED, Comparison, all_cases, run, streams
from bench.ties import Judge
from edge.script import Script

PROMPTS = [tuple(b"first prompt"), tuple(b"another prompt"), tuple(b"the third")]
TOKENS = 40


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(streams=8)
    await engine.start()
    yield engine
    await engine.stop()


async def compared(engine: ScriptedEngine, noise: float, change: int | None = None) -> Comparison:
    """Greedy cases of one prompt at batch 1; its reference changed from position `change` on."""
    comparison = Comparison(engine, PROMPTS[:1], TOKENS)
    await comparison.refer()
    if change is not None:
        reference = comparison.references[0, "greedy"]
        comparison.references[0, "greedy"] = changed(engine.script, reference, change)
    cases = [case for case in all_cases(1, 1) if case.rule == "greedy"]
    judge = Judge(ScriptedModel(engine.script, 8), noise, min_tokens=TOKENS)
    await comparison.compare(cases, judge, together=1)
    return comparison


def changed(script: Script, reference: tuple[int, ...], at: int) -> tuple[int, ...]:
    """The output if the second best token had been picked at `at`."""
    key, output = script.key(PROMPTS[0]), list(reference[:at])
    while len(output) < len(reference):
        row = script.logits(key, len(output), output[-1])
        output.append(int(np.argsort(-row)[1 if len(output) == at else 0]))
    return tuple(output)


async def test_every_case_runs_and_equals_the_reference(engine: ScriptedEngine) -> None:
    advanced: list[None] = []
    result = await run(engine, ScriptedModel(engine.script, 8), PROMPTS, TOKENS, lambda: advanced.append(None))
    data = result.data()
    assert data["streams"] == len(PROMPTS) * len(RULES) * len(POLICIES) * len(KINDS) * 2
    assert data["tokens"] == data["streams"] * TOKENS
    assert (data["faults"], data["ties"]) == (0, 0)
    assert len(data["rows"]) == len(RULES) * len(POLICIES) * len(KINDS) * 2
    assert len(advanced) >= streams(len(PROMPTS))
    for row in data["rows"]:
        if "none" in row["case"]:
            assert row["verified"] == 0
        if "hold right" in row["case"]:
            assert row["accepted"] == row["verified"] > 0


async def test_a_difference_that_noise_does_not_explain_is_a_fault_of_each_stream(engine: ScriptedEngine) -> None:
    comparison = await compared(engine, noise=0.0, change=10)
    assert len(comparison.tally.faults) == len(POLICIES) * len(KINDS)
    assert {fault.position for fault in comparison.tally.faults} == {10}
    assert not comparison.tally.ties


async def test_after_a_tie_the_comparison_goes_on_from_the_references_prefix(engine: ScriptedEngine) -> None:
    comparison = await compared(engine, noise=1e6, change=10)
    assert not comparison.tally.faults
    # One tie a stream: behind it, the streams follow the changed reference to its end.
    assert [tie.position for tie in comparison.tally.ties] == [10] * len(POLICIES) * len(KINDS)


async def test_streams_that_run_together_are_shuffled_but_complete() -> None:
    one, eight = all_cases(3, 1), all_cases(3, 8)
    assert len(set(eight)) == len(one)
    assert {dataclasses.replace(case, batch=1) for case in eight} == set(one)
    assert [dataclasses.replace(case, batch=1) for case in eight] != one


@pytest.mark.model
@pytest.mark.timeout(900)
async def test_hybrid_equals_cloud_only_on_the_real_model() -> None:
    """Two prompts of what `python -m bench lossless` runs whole."""
    from app.engine.llama_cpp import LlamaCppEngine, LlamaCppModel
    from bench.prompts import PROMPTS as TEXTS
    from edge import llama
    from edge.models import default_directory, pair
    from edge.protocol.frames import Message

    path = pair(default_directory()).target
    engine = LlamaCppEngine(path, model_id="target", context=512, streams=8, threads=1)
    await engine.start()
    model = LlamaCppModel(llama.Model(path), llama.ContextSettings(sequences=8, tokens=4096, threads=1))
    try:
        prompts = [tuple(engine.vocabulary.render([Message("user", text)])) for text in TEXTS[:2]]
        result = await run(engine, model, prompts, 12)
    finally:
        model.close()
        await engine.stop()
    assert result.tally.faults == []
    # Of so few tokens a single tie may be more than the share that is allowed of many.
    assert len(result.tally.ties) <= max(8, TIES_ALLOWED * result.tally.tokens.total())
