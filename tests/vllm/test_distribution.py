"""At a temperature vLLM samples by its own rule: drafts that are checked leave its distribution as it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine.vllm_engine import VllmEngine
from edge.protocol.frames import Sampling
from tests.vllm.conftest import MODEL
from tests.vllm.questions import ask, read

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]
SAMPLES = 2000
TEMPERATURE = 0.8


def exact(prefix: Sequence[int]) -> NDArray[np.float64]:
    """The probability of each token behind `prefix`, shape (V,), by the model itself, without vLLM."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([list(prefix)])).logits[0, -1].double() / TEMPERATURE
    probabilities: NDArray[np.float64] = torch.softmax(logits, -1).numpy()
    return probabilities


def p_value(tokens: Sequence[int], probabilities: NDArray[np.float64]) -> float:
    """Of Pearson's test; what is expected fewer than eight times is one cell."""
    from scipy.stats import chisquare  # type: ignore[import-untyped]

    expected = probabilities * len(tokens)
    cells = np.flatnonzero(expected >= 8)
    counts = Counter(tokens)
    observed = np.array([counts[int(token)] for token in cells])
    rest = len(tokens) - observed.sum(), len(tokens) - expected[cells].sum()
    return float(chisquare([*observed, rest[0]], [*expected[cells], rest[1]]).pvalue)


async def test_first_and_second_tokens_have_the_models_distribution(engine: VllmEngine) -> None:
    question = "Name a colour."
    prompt = ask(engine, question).prompt
    first = exact(prompt)
    draft = int(np.argmax(first))
    second = exact((*prompt, draft))
    drafts = (draft, int(np.argsort(second)[-2]))  # the second choice: so that it is both accepted and rejected, often

    async def sample(seed: int) -> list[int]:
        sampling = Sampling(temperature=TEMPERATURE, seed=seed)
        generation = engine.submit(ask(engine, question, sampling=sampling, max_tokens=3))
        generation.offer(0, 0, drafts)
        tokens = await read(generation)
        used.append(generation.usage().verified)
        return tokens

    used: list[int] = []
    found: list[list[int]] = []
    for start in range(0, SAMPLES, 40):
        found += await asyncio.gather(*map(sample, range(start, start + 40)))
    assert p_value([tokens[0] for tokens in found], first) > 1e-3
    behind = [tokens[1] for tokens in found if tokens[0] == draft and len(tokens) > 1]
    assert sum(used) > 0.9 * len(behind) > 50
    assert p_value(behind, second) > 1e-3
    assert 0.02 < behind.count(drafts[1]) / len(behind) < 0.98
