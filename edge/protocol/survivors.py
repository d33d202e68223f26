"""What could have been picked instead: the filters' survivors with their scores, and how near each choice was.

The same context gives slightly different logits in batches of other shapes. If no logit is off by more than `eps`, a
token may be picked by one side and not the other only if it is `plausible(eps)`: so two runs that part at a token can
be told to be a floating-point tie, or a fault. This is for tests and benches; picking itself ranks much less (row.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.protocol.frames import Sampling
from edge.protocol.row import Floats, Ids


@dataclass(frozen=True, slots=True)
class Survivors:
    """All tokens that penalties, bias and mask left, in rank order; the first `count` of them survived the filters."""

    ranked: Ids
    distances: Floats
    """(logit − largest logit) / temperature, descending from 0; at temperature 0 undivided."""
    noise: Floats
    """Zeros at temperature 0."""
    count: int
    rule: Sampling

    @property
    def ids(self) -> Ids:
        """The survivors, in rank order."""
        return self.ranked[: self.count]

    @property
    def scores(self) -> Floats:
        """Distance and noise of each survivor, added: the largest is picked."""
        return self.distances[: self.count] + self.noise[: self.count]

    @property
    def winner(self) -> int:
        return best(self.ids, self.scores)

    def gap(self, a: int, b: int) -> float:
        """How much a's logit would have to fall for b to score as high, if no filter stood between; may be negative."""
        scores = self.distances + self.noise
        first, second = (int(np.flatnonzero(self.ranked == token)[0]) for token in (a, b))
        return float(scores[first] - scores[second]) * (self.rule.temperature or 1.0)

    def plausible(self, eps: float) -> Ids:
        """Tokens that may win if every logit may be off by up to `eps` (in the model's own units); grows with eps.

        A token may win if it can survive and no token that surely survives scores higher by more than the error of a
        difference, 2·eps.
        """
        slack = self._slack(eps)
        possible, sure = self._survival(slack)
        scores = self.distances + self.noise
        bar = scores[sure].max(initial=-math.inf) - slack
        tokens: Ids = self.ranked[possible & (scores >= bar)]
        return tokens

    def close(self, a: int, b: int, eps: float) -> bool:
        """Whether logits off by up to `eps` may decide between a and b: by score, or by an edge of a filter."""
        return {a, b} <= set(self.plausible(eps).tolist())

    def distance(self, a: int, b: int, limit: float = 64.0) -> float:
        """The smallest `eps` at which `close` holds, to 1e-6 (relative above 1); inf if it is above `limit`."""
        if not self.close(a, b, limit):
            return math.inf
        low, high = 0.0, limit
        while high - low > 1e-6 * max(1.0, low):
            middle = (low + high) / 2
            low, high = (low, middle) if self.close(a, b, middle) else (middle, high)
        return high

    def _slack(self, eps: float) -> float:
        """Error of a difference of two distances: 2·eps, stretched by repetition penalty and temperature."""
        penalty = self.rule.repetition_penalty
        return 2 * eps * max(penalty, 1 / penalty) / (self.rule.temperature or 1.0)

    def _survival(self, slack: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Masks in rank order: tokens that can survive, and tokens that surely do.

        A token's rank lies between the number of tokens certainly above it and that of those not certainly below. The
        j-th largest of perturbed values is within the perturbation of the j-th largest; so the weight of the first j
        ranks against the rest's moves by a factor of exp(±slack) at most, each side of the ratio by half of that.
        """
        rule, n = self.rule, len(self.ranked)
        possible, sure = np.ones(n, np.bool_), np.ones(n, np.bool_)
        if rule.temperature == 0:
            return possible, sure
        ascending = -self.distances
        first = np.searchsorted(ascending, ascending - slack, "left")
        last = np.searchsorted(ascending, ascending + slack, "right") - 1
        kept = n
        if rule.top_k:
            kept = min(n, rule.top_k)
            possible &= first < rule.top_k
            sure &= last < rule.top_k
        if rule.top_p < 1:
            before = np.concatenate(((0.0,), np.cumsum(np.exp(self.distances[:kept]))))
            held, rest = before * (1 - rule.top_p), (before[-1] - before) * rule.top_p
            first, last = np.minimum(first, kept), np.minimum(last, kept)
            possible &= held[first] * math.exp(-slack) < rest[first]
            sure &= held[last] * math.exp(min(slack, 700.0)) < rest[last]
        if rule.min_p > 0:
            possible &= self.distances + slack >= math.log(rule.min_p)
            sure &= self.distances - slack >= math.log(rule.min_p)
        return possible, sure


def count_kept(distances: Floats, rule: Sampling) -> int:
    """How many of all tokens, ranked, top-k, top-p and min-p keep, applied in that order; at least 1."""
    count = len(distances)
    if rule.temperature == 0:
        return count
    if rule.top_k:
        count = min(count, rule.top_k)
    if rule.top_p < 1:
        upto = np.cumsum(np.exp(distances[:count]))
        count = min(count, 1 + int(np.searchsorted(upto[:-1], rule.top_p * upto[-1])))
    return min(count, above(distances, rule.min_p))


def above(distances: Floats, min_p: float) -> int:
    """How many of the ranked tokens have at least `min_p` times the probability of the first."""
    if min_p <= 0:
        return len(distances)
    return int(np.searchsorted(-distances, -math.log(min_p), "right"))


def best(ids: Ids, scores: Floats) -> int:
    """The id with the largest score, the lowest of them if several have it."""
    return int(ids[scores == scores.max()].min())
