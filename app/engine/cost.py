"""What a step costs: seconds as a function of the tokens in it and of the context that it reads. Pure.

A step's time is flat while the model's weights are what it waits for, and linear in the tokens once arithmetic is
(roofline). Between the two, measured times are not even monotone: on one CPU a step of 2 tokens takes 1.5 times as long
as one of 1, and one of 3 hardly more than one of 2. So small sizes have a row each, larger ones a row per power of
2^(1/4) with the slope between its neighbours, and what was never seen is interpolated, or continued along the slope of
the largest sizes.

Each row is a recursive mean whose surprises are clipped (Huber, 1964), so that a pause of the machine doesn't count as
the model's cost, while a lasting change does. The price of context is one slope for all rows, fitted within them: how
seconds move with context while the size stays the same.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

EXACT = 32
"""Sizes up to here have a row of their own."""
FORGET = 0.05
"""Weight of the newest step in a row that has seen many."""
CLIP = 3.0
"""A surprise counts as at most this many usual ones."""
ERRORS = 512
"""Steps over which the error is reported."""


@dataclass(slots=True)
class _Row:
    tokens: float
    context: float
    seconds: float
    scale: float
    """Usual size of a surprise, seconds."""
    seen: int = 1


@dataclass(slots=True)
class CostModel:
    _rows: dict[int, _Row] = field(default_factory=dict)
    _sizes: list[int] = field(default_factory=list)
    """Keys of `_rows`, rising."""
    _covariance: float = 0.0
    _variance: float = 0.0
    _errors: deque[float] = field(default_factory=lambda: deque(maxlen=ERRORS))

    def observe(self, tokens: int, context: int, seconds: float) -> None:
        """A step of `tokens` that read `context` tokens of KV cache took `seconds`."""
        key = _key(tokens)
        row = self._rows.get(key)
        if row is None:
            self._rows[key] = _Row(tokens, context, seconds, 0.1 * seconds)
            self._sizes.insert(bisect_left(self._sizes, key), key)
            return
        surprise = seconds - self.predict(tokens, context)
        self._errors.append(abs(surprise) / max(seconds, 1e-9))
        row.seen += 1
        forget = max(FORGET, 1 / row.seen)
        clipped = max(-CLIP * row.scale, min(CLIP * row.scale, surprise))
        away = context - row.context
        expected = self.context_s * away + self._within(key) * (tokens - row.tokens)
        self._covariance += FORGET * (away * (clipped + self.context_s * away) - self._covariance)
        self._variance += FORGET * (away * away - self._variance)
        row.scale = max(1e-6, row.scale + FORGET * (min(abs(surprise), 10 * row.scale) - row.scale))
        row.tokens += forget * (tokens - row.tokens)
        row.context += forget * away
        row.seconds += forget * (clipped + expected)

    def predict(self, tokens: int, context: int) -> float:
        """Seconds of such a step; 0 before the first observation."""
        if not self._rows:
            return 0.0
        row = self._rows.get(_key(tokens))
        if row is not None:
            within = self._within(_key(tokens)) * (tokens - row.tokens)
            return self._positive(row.seconds + self.context_s * (context - row.context) + within, row)
        at = bisect_left(self._sizes, _key(tokens))
        if at == 0:
            first = self._rows[self._sizes[0]]
            return self._positive(first.seconds + self.context_s * (context - first.context), first)
        if at < len(self._sizes):
            below, above = self._rows[self._sizes[at - 1]], self._rows[self._sizes[at]]
        else:
            below, above = self._rows[self._sizes[bisect_left(self._sizes, self._sizes[-1] // 2)]], self._last
        slope = self._slope(below, above)
        if at == len(self._sizes):
            slope = max(0.0, slope)
            below = above
        seconds = below.seconds + slope * (tokens - below.tokens) + self.context_s * (context - below.context)
        return self._positive(seconds, below)

    @property
    def context_s(self) -> float:
        """Seconds that a token of context adds to a step; never less than 0."""
        return max(0.0, self._covariance / self._variance) if self._variance > 0 else 0.0

    @property
    def largest(self) -> int:
        """The largest size seen, tokens; 0 before the first step. Beyond it `predict` extrapolates."""
        return round(self._last.tokens) if self._rows else 0

    def seen(self, tokens: int) -> int:
        """How many steps of about this size there were."""
        row = self._rows.get(_key(tokens))
        return row.seen if row is not None else 0

    def error(self, quantile: float = 0.9) -> float | None:
        """Quantile of |predicted − measured| / measured over the last steps, each predicted before it was learned
        from. None before the first prediction.
        """
        if not self._errors:
            return None
        ordered = sorted(self._errors)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]

    @property
    def _last(self) -> _Row:
        return self._rows[self._sizes[-1]]

    def _within(self, key: int) -> float:
        """Seconds per token inside a row of several sizes: as between its neighbours, never falling."""
        if key <= EXACT:
            return 0.0
        at = bisect_left(self._sizes, key)
        below, above = self._sizes[max(0, at - 1)], self._sizes[min(len(self._sizes) - 1, at + 1)]
        return max(0.0, self._slope(self._rows[below], self._rows[above]))

    def _slope(self, below: _Row, above: _Row) -> float:
        """Seconds per token between two rows, their contexts made equal."""
        tokens = above.tokens - below.tokens
        if tokens <= 0:
            return 0.0
        return (above.seconds - below.seconds - self.context_s * (above.context - below.context)) / tokens

    @staticmethod
    def _positive(seconds: float, row: _Row) -> float:
        """A fitted slope may lead too far down: never below a tenth of what was seen."""
        return max(seconds, 0.1 * row.seconds)


def _key(tokens: int) -> int:
    """The row's number: the size itself, or the lower end of its class."""
    if tokens <= EXACT:
        return tokens
    return max(EXACT + 1, round(2 ** (math.floor(4 * math.log2(tokens)) / 4)))
