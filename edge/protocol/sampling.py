"""The one sampling rule of both sides (docs/sampling.md is its full text; DESIGN §4 says why).

    logits ─► penalties ─► bias ─► mask ─► temperature ─► top-k ─► top-p ─► min-p ─► + noise ─► argmax

The target's token at an output position is the argmax of log-probability plus Gumbel noise, and the noise is a function
of seed, position, token and choice (noise.py). Argmax over Gumbel noise draws exactly from the softmax (Gumbel 1954;
Maddison et al., arXiv 1411.0030), so the output has the target's distribution, yet is a function of the logits: whoever
computes it, in whatever order, gets the same token. An edge that applies the same noise to its own logits agrees with
the target more often (arXiv 2408.07978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from edge.protocol.frames import Sampling, TokenLogprob
from edge.protocol.noise import LARGEST, gumbel, noise, noise_grid, words
from edge.protocol.penalties import Penalties, check_bias
from edge.protocol.row import Floats, Ids, Row, below
from edge.protocol.survivors import Survivors, above, best, count_kept

__all__ = ["NothingLeft", "Sampler", "Survivors", "noise"]

Logits = NDArray[np.float32]
Mask = NDArray[np.bool_]

_SMALL: Final = 512  # so few tokens get all their noise: screening would cost more
_LEADERS: Final = 256  # of more tokens, these many get their noise first, to screen the others by
_CHUNK: Final = 8192


class NothingLeft(ValueError):
    """The mask, or logits that are no numbers, left no token to pick."""


class Constraint(Protocol):
    """What a grammar allows, at the end of the output so far (edge/openai/structured.py)."""

    def allowed(self) -> Mask:
        """The tokens that may come next, bool, (V,)."""
        ...

    def push(self, token: int) -> None: ...

    def pop(self, count: int) -> None: ...


class Sampler:
    """Picks the tokens of one stream.

    Holds no state but what penalties and `constraint` need: without them every pick stands alone. `sampling.seed` must
    be set unless the temperature is 0. Raises ValueError for a missing seed, and for a bias or prompt outside the
    vocabulary.
    """

    def __init__(
        self,
        sampling: Sampling,
        vocabulary: int,
        prompt: Sequence[int] = (),
        constraint: Constraint | None = None,
    ) -> None:
        """`constraint`: what `sampling.grammar` allows; at the beginning of its output."""
        if sampling.temperature > 0 and sampling.seed is None:
            raise ValueError("a seed is needed to sample at a temperature above 0")
        check_bias(sampling, vocabulary)
        if prompt and not 0 <= min(prompt) <= max(prompt) < vocabulary:
            raise ValueError(f"the prompt has an id that is not in the vocabulary of {vocabulary}")
        self.sampling = sampling
        self.vocabulary = vocabulary
        self._penalties = Penalties(sampling, vocabulary, prompt) if Penalties.needed(sampling) else None
        self._constraint = constraint
        self._grid = np.empty((0, vocabulary))
        self._grid_start = 0

    def push(self, token: int) -> None:
        """Count a token of the output. Only penalties and a grammar look at it."""
        if self._penalties:
            self._penalties.push(token)
        if self._constraint:
            self._constraint.push(token)

    def pop(self, count: int) -> None:
        """Take back the last `count` output tokens."""
        if self._penalties:
            self._penalties.pop(count)
        if self._constraint:
            self._constraint.pop(count)

    def pick(self, logits: Logits, position: int, allowed: Mask | None = None) -> int:
        """The token at an output position.

        `logits`: float32, (V,), unchanged by this. `allowed`: bool, (V,), the tokens that are permitted, of those that
        the constraint allows. Raises NothingLeft, and ValueError for a row of another length.
        """
        rule = self.sampling
        allowed = self._constrained(allowed)
        if rule.temperature == 0 and self._penalties is None and len(logits) == self.vocabulary:
            token = int(logits.argmax())  # the first of all is the first of the allowed ones, if it is one of them
            if math.isfinite(logits[token]) and (allowed is None or allowed[token]):
                return token
        with np.errstate(over="ignore", invalid="ignore"):
            row = self._row(logits, allowed)
            if rule.temperature == 0:
                return int(row.ranked(below(row.top))[0][0])
            if rule.top_k or rule.top_p < 1 or rule.min_p > 0:
                return self._pick_filtered(row, position)
            return self._pick_unfiltered(row, position)

    def survivors(self, logits: Logits, position: int, allowed: Mask | None = None) -> Survivors:
        """All that `pick` decides between, from a full ranking: some ms. Same arguments, same errors."""
        rule = self.sampling
        with np.errstate(over="ignore", invalid="ignore"):
            row = self._row(logits, self._constrained(allowed))
            ids, values = row.ranked(np.float32(-np.inf))
            distances = (values - row.top) / (rule.temperature or 1.0)
            added = self._noise(position, ids) if rule.temperature else np.zeros(len(ids))
            return Survivors(ids, distances, added, count_kept(distances, rule), rule)

    def logprobs(self, logits: Logits, token: int, top: int) -> TokenLogprob:
        """Log-softmax of the raw logits (natural log, float64): before penalties, mask and temperature.

        `top`: how many of the most probable tokens to list, in rank order. A token without probability gets -9999.0, as
        in OpenAI's API, because JSON has no infinity.
        """
        row = _clean(self._checked(logits), np.empty(0, np.int64), np.empty(0))
        normaliser = row.top + math.log(np.exp(row.plain.astype(np.float64) - row.top).sum())
        ids, values = row.largest(top) if top else (row.changed, row.values)
        listed = tuple((int(i), float(value - normaliser)) for i, value in zip(ids, values, strict=True))
        own = float(row.plain[token])
        return TokenLogprob(token, own - normaliser if own > -math.inf else -9999.0, listed)

    def _constrained(self, allowed: Mask | None) -> Mask | None:
        if self._constraint is None:
            return allowed
        mask = self._constraint.allowed()
        return mask if allowed is None else mask & allowed

    def _checked(self, logits: Logits) -> Logits:
        if logits.shape != (self.vocabulary,):
            raise ValueError(f"logits of shape {logits.shape}, the vocabulary has {self.vocabulary}")
        return logits

    def _row(self, logits: Logits, allowed: Mask | None) -> Row:
        plain = self._checked(logits)
        changed, values = np.empty(0, np.int64), np.empty(0)
        if self._penalties is not None:
            changed, values = self._penalties.ids, self._penalties.values(logits)
            plain = plain.copy()
            plain[changed] = -np.inf
        if allowed is not None:
            plain = np.where(allowed, plain, np.float32(-np.inf))
            kept = allowed[changed]
            changed, values = changed[kept], values[kept]
        return _clean(plain, changed, values)

    def _noise(self, position: int, ids: Ids) -> Floats:
        if self.vocabulary <= _SMALL:
            return self._noise_of_all(position)[ids]
        return noise(self.sampling.seed or 0, position, self.sampling.choice, ids)

    def _noise_of_all(self, position: int) -> Floats:
        """A small vocabulary's noise, (V,): computed for some positions at a time, as they mostly come in order."""
        at = position - self._grid_start
        if not 0 <= at < len(self._grid):
            rows = 4096 // self.vocabulary
            at = position % rows
            self._grid_start = position - at
            positions = range(self._grid_start, self._grid_start + rows)
            self._grid = noise_grid(self.sampling.seed or 0, positions, self.sampling.choice, self.vocabulary)
        row: Floats = self._grid[at]
        return row

    def _pick_filtered(self, row: Row, position: int) -> int:
        rule = self.sampling
        if rule.top_k:
            ids, values = row.largest(rule.top_k)
        elif rule.top_p < 1:
            ids, values = row.nucleus(rule.top_p, rule.temperature)
        else:
            ids, values = row.ranked(below(row.top + rule.temperature * math.log(rule.min_p)))
        distances = (values - row.top) / rule.temperature
        # After top-k the rest is few, and of the nucleus only min-p can take more.
        count = count_kept(distances, rule) if rule.top_k else above(distances, rule.min_p)
        ids, distances = ids[:count], distances[:count]
        if count == 1:
            return int(ids[0])
        if count <= _SMALL:
            return self._leader(position, ids, distances)[1]
        leader = self._leader(position, ids[:_LEADERS], distances[:_LEADERS])
        return self._screen(position, ids[_LEADERS:], distances[_LEADERS:], leader)

    def _pick_unfiltered(self, row: Row, position: int) -> int:
        """Argmax over the whole vocabulary, with noise for those tokens only that could still win."""
        temperature = self.sampling.temperature
        if len(row.plain) <= _SMALL:
            return int(((row.dense() - row.top) / temperature + self._noise_of_all(position)).argmax())
        ids, values = row.at_least(below(row.top - 3 * temperature))
        leader = self._leader(position, ids[:_LEADERS], (values[:_LEADERS] - row.top) / temperature)
        # No noise is above LARGEST, so tokens that far below the leader need not even be hashed.
        ids, values = row.at_least(below(row.top + temperature * (leader[0] - LARGEST - 1e-6)))
        return self._screen(position, ids, (values - row.top) / temperature, leader)

    def _leader(self, position: int, ids: Ids, distances: Floats) -> tuple[float, int]:
        """Score and id of the best of these tokens."""
        scores = distances + self._noise(position, ids)
        return float(scores.max()), best(ids, scores)

    def _screen(self, position: int, ids: Ids, distances: Floats, leader: tuple[float, int]) -> int:
        """The best of `leader` (score and id) and these tokens.

        A token scores at least b if its noise is at least t = b − distance, that is if u ≥ exp(−e⁻ᵗ). Then 1 − u is at
        most 1 − exp(−e⁻ᵗ) ≤ e⁻ᵗ = weight·e⁻ᵇ. And 1 − u is at least (2³² − 1 − x0)·2⁻³², x0 being u's first 32 bits. So
        a token for which that exceeds weight·e⁻ᵇ cannot win: most are out before any logarithm. The comparison is in
        float32, with a margin of 1e-3 over its errors: at most 6e-6 in a weight, as no token with an exponent below
        −44 can win.
        """
        score, token = leader
        for begin in range(0, len(ids), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            x0, x1 = words(self.sampling.seed or 0, position, self.sampling.choice, ids[part])
            limit = np.exp(distances[part].astype(np.float32)) * np.float32(1.001 * 2.0**32 * math.exp(-score))
            rest = np.flatnonzero((x0 ^ np.uint64(0xFFFFFFFF)).astype(np.float32) <= limit)
            if len(rest):
                scores = distances[part][rest] + gumbel(x0[rest], x1[rest])
                challenger = float(scores.max()), -best(ids[part][rest], scores)
                score, token = max((score, -token), challenger)
                token = -token
        return token


def _clean(plain: Logits, changed: Ids, values: Floats) -> Row:
    """The row, with logits that are no finite numbers taken out. Raises NothingLeft."""
    plain_top = float(plain.max())
    if not plain_top < math.inf:  # also true of NaN, which max() hands on
        plain = np.where(np.isfinite(plain), plain, np.float32(-np.inf))
        plain_top = float(plain.max())
    top = max(plain_top, float(values.max(initial=-math.inf)))
    if top == -math.inf:
        raise NothingLeft("no token is left to pick")
    return Row(plain, changed, values, plain_top, top)
