"""docs/sampling.md line by line, slow, in plain Python: what the fast implementation is compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edge.protocol.frames import Sampling


@dataclass(frozen=True)
class Outcome:
    token: int
    kept: list[int]
    """Survivors in rank order."""
    scores: list[float]
    undecided: bool
    """A border or two scores are so close that the text leaves them open."""


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second % 2**32,
            (first >> 32) ^ c3 ^ k1,
            first % 2**32,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def gumbel(seed: int, position: int, choice: int, token: int) -> float:
    x0, x1, _, _ = philox((position, token, choice, 0), (seed % 2**32, seed // 2**32))
    return -math.log(-math.log((x0 * 2**20 + x1 // 2**12 + 0.5) / 2**52))


def penalised(
    rule: Sampling, logits: Sequence[float], prompt: Sequence[int], output: Sequence[int]
) -> dict[int, float]:
    """Steps 1 to 4."""
    left: dict[int, float] = {}
    for token, given in enumerate(logits):
        value = given if math.isfinite(given) else -math.inf
        count = output.count(token)
        if rule.repetition_penalty != 1 and (count or token in prompt):
            value = value / rule.repetition_penalty if value > 0 else value * rule.repetition_penalty
        if count:
            value = value - rule.presence_penalty
            value = value - rule.frequency_penalty * count
        value = value + math.fsum(bias for biased, bias in rule.bias if biased == token)
        if value > -math.inf:
            left[token] = value
    return left


def pick(
    rule: Sampling,
    logits: Sequence[float],
    position: int,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    allowed: Sequence[bool] | None = None,
) -> Outcome | None:
    """None: no token is left."""
    left = penalised(rule, logits, prompt, output)
    if allowed is not None:
        left = {token: value for token, value in left.items() if allowed[token]}
    if not left:
        return None
    rank = sorted(left, key=lambda token: (-left[token], token))
    if rule.temperature == 0:
        return Outcome(rank[0], rank, [left[token] - left[rank[0]] for token in rank], False)
    distance = {token: (left[token] - left[rank[0]]) / rule.temperature for token in rank}
    if rule.top_k:
        rank = rank[: rule.top_k]
    rank, undecided = nucleus(rule, rank, distance)
    if rule.min_p > 0:
        undecided = undecided or any(abs(distance[token] - math.log(rule.min_p)) < 1e-9 for token in rank)
        rank = [token for token in rank if distance[token] >= math.log(rule.min_p)]
    score = {token: distance[token] + gumbel(rule.seed or 0, position, rule.choice, token) for token in rank}
    order = sorted(rank, key=lambda token: (-score[token], token))
    if len(order) > 1:
        undecided = undecided or score[order[0]] - score[order[1]] < 1e-11
    return Outcome(order[0], rank, [score[token] for token in rank], undecided)


def nucleus(rule: Sampling, rank: list[int], distance: dict[int, float]) -> tuple[list[int], bool]:
    """Step 8, and whether a border is too close to call."""
    if rule.top_p == 1:
        return rank, False
    weights = [math.exp(distance[token]) for token in rank]
    total, before, kept, undecided = math.fsum(weights), 0.0, [], False
    for token, weight in zip(rank, weights, strict=True):
        undecided = undecided or abs(before - rule.top_p * total) < 1e-9 * total
        if before < rule.top_p * total:
            kept.append(token)
        before += weight
    return kept, undecided
