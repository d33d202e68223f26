"""One row of logits after penalties, bias and mask, and the parts of it that can win.

Everything that a filter keeps is a prefix of one ranking: higher logit first, lower id first among equals. So instead
of sorting a vocabulary of 150,000, find a threshold that nothing kept can lie below, and rank what is above it.
Thresholds are chosen so that this is exact, not likely: each says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

_LOWEST: Final = np.finfo(np.float32).min
_SMALL: Final = 4096  # vocabularies below this are not worth screening
_SCREEN_ERROR: Final = 1e-4
"""Bound on the relative error of a total of weights in float32. A weight is exp of (x − x_max)·(1/T): three roundings
of 2⁻²⁴ on an exponent that is at least −104 (below, float32 holds no weight) make 1.9e-5, exp itself 3e-7, the pairwise
sum 2e-6."""


@dataclass(frozen=True, slots=True)
class Row:
    """The tokens that are left, with their logits.

    `plain` (float32, (V,)): logits that nothing changed, −inf elsewhere. `changed` (ids) and `values` (float64): the
    others.
    """

    plain: NDArray[np.float32]
    changed: Ids
    values: Floats
    plain_top: float
    top: float
    """The largest logit that is left; finite."""

    def at_least(self, threshold: np.float32) -> tuple[Ids, Floats]:
        """Ids and logits of all tokens whose logit is at least `threshold`; plain ones by id, then the changed ones."""
        ids = np.flatnonzero(self.plain >= max(threshold, _LOWEST))
        logits = self.plain[ids].astype(np.float64)
        if len(self.changed):
            above = (self.values >= threshold) & (self.values > -np.inf)  # a penalty may go below float32's range
            ids = np.concatenate((ids, self.changed[above]))
            logits = np.concatenate((logits, self.values[above]))
        return ids, logits

    def dense(self) -> Floats:
        """All logits in float64, (V,); −inf where nothing is left."""
        logits = self.plain.astype(np.float64)
        logits[self.changed] = self.values
        return logits

    def ranked(self, threshold: np.float32) -> tuple[Ids, Floats]:
        """As `at_least`, in rank order."""
        return self._rank(*self.at_least(threshold))

    def _rank(self, ids: Ids, logits: Floats) -> tuple[Ids, Floats]:
        order = np.lexsort((ids, -logits)) if len(self.changed) else np.argsort(-logits, kind="stable")
        return ids[order], logits[order]

    def largest(self, count: int) -> tuple[Ids, Floats]:
        """The first `count` tokens in rank order (all that are left, if fewer)."""
        size = len(self.plain)
        blocks = max(4 * count, 512)
        if count >= size:
            threshold = _LOWEST
        elif 2 * blocks > size:
            threshold = np.partition(self.plain, size - count)[size - count]
        else:
            # `count` different blocks have a token at least as large as the count-th largest maximum of a block. So the
            # count-th largest token of all is at least that large.
            depth = size // blocks
            maxima = self.plain[: depth * blocks].reshape(depth, blocks).max(axis=0)
            threshold = np.partition(maxima, blocks - count)[blocks - count]
        ids, logits = self.ranked(threshold)
        return ids[:count], logits[:count]

    def nucleus(self, top_p: float, temperature: float) -> tuple[Ids, Floats]:
        """The shortest prefix of the ranking that holds at least `top_p` (below 1) of the probability."""
        total, error = self._total(temperature)
        for parts in (32, 1024, len(self.plain)):
            # Tokens lighter than total·(1 − top_p)/V weigh less than total·(1 − top_p) together, so the nucleus lies
            # above that. It nearly always lies above a much higher threshold, which shows in the weight found there.
            lightest = 0.999 * (1 - top_p) * total / parts
            ids, logits = self.at_least(below(self.top + temperature * math.log(lightest)))
            if self._weights(logits, temperature).sum() > top_p * total * (1 + error):
                break
        ids, logits = self._rank(ids, logits)
        before = np.concatenate(((0.0,), np.cumsum(self._weights(logits, temperature))[:-1]))
        if error:
            low, high = np.searchsorted(before, (top_p * total * (1 - error), top_p * total * (1 + error)))
            if low == high:
                return ids[:low], logits[:low]
            total = self._exact_total(temperature)  # the edge lies within the screen's error: decide it in float64
        count = np.searchsorted(before, top_p * total)
        return ids[:count], logits[:count]

    def _weights(self, logits: Floats, temperature: float) -> Floats:
        weights: Floats = np.exp((logits - self.top) / temperature)
        return weights

    def _total(self, temperature: float) -> tuple[float, float]:
        """Sum of all weights exp((logit − top)/T), and a bound on its relative error (0: it is in float64)."""
        if len(self.plain) < _SMALL or not 1e-3 <= temperature <= 1e3:
            return self._exact_total(temperature), 0.0
        total = float(self._weights(self.values, temperature).sum())
        if self.plain_top > -math.inf:
            weights = np.exp((self.plain - np.float32(self.plain_top)) * np.float32(1 / temperature))
            total += float(weights.sum()) * math.exp((self.plain_top - self.top) / temperature)
        return total, _SCREEN_ERROR

    def _exact_total(self, temperature: float) -> float:
        return float(self._weights(self.dense(), temperature).sum())


def below(threshold: float) -> np.float32:
    """A float32 at or just below `threshold`, so that comparing with it loses nothing."""
    with np.errstate(over="ignore"):
        return np.float32(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
