"""Drafts, right or wrong, coupled or not, leave the output's distribution the target's own.

200,000 tokens of a 50-token language in which each token depends on the one before: blocks are drafted by a model that
is off, checked by `accept`, and the pairs (token before, token) counted against the target's softmax, by chi-square.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from edge.protocol.frames import Sampling
from edge.protocol.sampling import Sampler
from edge.protocol.verifying import accept

VOCABULARY = 50
SAMPLES = 200_000
BLOCK = 3

Drafting = Literal["top1", "coupled"]
Table = NDArray[np.float32]


@dataclass(frozen=True)
class Run:
    pairs: NDArray[np.int64]
    """(V, V): how often a token followed another."""
    drafted: int
    agreed: int


def table(seed: int) -> Table:
    """Logits of the next token by the one before, (V, V)."""
    return (np.random.default_rng(seed).standard_normal((VOCABULARY, VOCABULARY)) * 1.5).astype(np.float32)


TARGET = table(1)
DRAFT = (TARGET + 0.4 * table(2)).astype(np.float32)


def run(drafting: Drafting, seed: int) -> Run:
    """One long stream. Drafts are made as an edge makes them: from its own model, behind its own guesses."""
    sampler = Sampler(Sampling(seed=seed), VOCABULARY)
    favourite = DRAFT.argmax(axis=1).tolist()
    pairs = np.zeros((VOCABULARY, VOCABULARY), np.int64)
    position, previous, drafted, agreed = 0, 0, 0, 0
    while position < SAMPLES:
        block: list[int] = []
        behind = previous
        for ahead in range(BLOCK):
            behind = favourite[behind] if drafting == "top1" else sampler.pick(DRAFT[behind], position + ahead)
            block.append(behind)
        tokens = accept(block, verification(sampler, (previous, *block), position))
        for token in tokens:
            pairs[previous, token] += 1
            previous = token
        position += len(tokens)
        drafted += BLOCK
        agreed += len(tokens) - 1
    return Run(pairs, drafted, agreed)


def verification(sampler: Sampler, context: tuple[int, ...], head: int) -> Callable[[int], int]:
    """The target's token at the i-th position from the head on, behind `context` up to there."""
    return lambda i: sampler.pick(TARGET[context[i]], head + i)


def p_value(pairs: NDArray[np.int64], logits: Table) -> float:
    """Chi-square over all rows; cells that expect fewer than 5 are taken together, row by row."""
    statistic, freedom = 0.0, 0
    for counts, row in zip(pairs, logits.astype(np.float64), strict=True):
        expected = np.exp(row - row.max())
        expected *= counts.sum() / expected.sum()
        rare = expected < 5
        observed = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        kept = expected > 0
        statistic += float(((observed - expected)[kept] ** 2 / expected[kept]).sum())
        freedom += int(kept.sum()) - 1
    return float(stats.chi2.sf(statistic, freedom))


@pytest.fixture(scope="module")
def runs() -> dict[Drafting, Run]:
    return {"top1": run("top1", 101), "coupled": run("coupled", 202)}


@pytest.mark.parametrize("drafting", ["top1", "coupled"])
def test_the_output_has_the_targets_distribution(runs: dict[Drafting, Run], drafting: Drafting) -> None:
    assert runs[drafting].pairs.sum() >= SAMPLES
    assert p_value(runs[drafting].pairs, TARGET) > 0.01


@pytest.mark.parametrize("drafting", ["top1", "coupled"])
def test_the_check_would_notice_another_distribution(runs: dict[Drafting, Run], drafting: Drafting) -> None:
    """The draft's distribution, and the target's off by 0.15 in every other logit, are told apart."""
    pairs = runs[drafting].pairs
    assert p_value(pairs, DRAFT) < 1e-9
    slightly_off = TARGET + np.where(np.arange(VOCABULARY) % 2, np.float32(0.15), np.float32(0))
    assert p_value(pairs, slightly_off) < 1e-3


def test_coupled_drafts_agree_more_often(runs: dict[Drafting, Run]) -> None:
    alpha = {name: result.agreed / result.drafted for name, result in runs.items()}
    assert alpha["coupled"] > 1.5 * alpha["top1"]
