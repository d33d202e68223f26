"""Penalties and bias: the tokens of one stream whose logits are not the model's own any more.

Only these few are computed in float64; all others keep their float32 logit, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.protocol.frames import Sampling


class Penalties:
    """Counts of one stream's tokens. `ids`: every token that may be changed, in no order; once in, a token stays in."""

    def __init__(self, sampling: Sampling, vocabulary: int, prompt: Sequence[int]) -> None:
        self._rule = sampling
        self._counts = np.zeros(vocabulary, np.int32)
        self._in_prompt = np.zeros(vocabulary, np.bool_)
        self._bias = np.zeros(vocabulary, np.float64)
        self._output: list[int] = []
        for token, value in sampling.bias:
            self._bias[token] += value
        if sampling.repetition_penalty != 1:
            self._in_prompt[list(prompt)] = True
        self.ids: NDArray[np.int64] = np.flatnonzero(self._in_prompt | (self._bias != 0))
        self._known = set(self.ids.tolist())

    @staticmethod
    def needed(sampling: Sampling) -> bool:
        """Whether the rule looks at anything but the logits."""
        return penalises(sampling) or bool(sampling.bias)

    def push(self, token: int) -> None:
        """Count an output token."""
        if not penalises(self._rule):
            return
        self._output.append(token)
        self._counts[token] += 1
        if token not in self._known:
            self._known.add(token)
            self.ids = np.append(self.ids, token)

    def pop(self, count: int) -> None:
        """Take back the last `count` output tokens. Raises ValueError if there are fewer."""
        if not penalises(self._rule):
            return
        if not 0 <= count <= len(self._output):
            raise ValueError(f"{count} tokens can't be taken back, there are {len(self._output)}")
        for _ in range(count):
            self._counts[self._output.pop()] -= 1

    def values(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """Logits of `ids` after repetition, presence and frequency penalty and bias, in that order; float64."""
        rule, counts = self._rule, self._counts[self.ids]
        values = logits[self.ids].astype(np.float64)
        values[~np.isfinite(values)] = -np.inf
        if (penalty := rule.repetition_penalty) != 1:
            penalised = np.where(values > 0, values / penalty, values * penalty)
            values = np.where(self._in_prompt[self.ids] | (counts > 0), penalised, values)
        if rule.presence_penalty:
            values -= rule.presence_penalty * (counts > 0)
        if rule.frequency_penalty:
            values -= rule.frequency_penalty * counts
        return values + self._bias[self.ids]


def penalises(sampling: Sampling) -> bool:
    """Whether output tokens change later picks."""
    return bool(sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1)


def check_bias(sampling: Sampling, vocabulary: int) -> None:
    """Raises ValueError for a bias on an id outside the vocabulary, or one that isn't between −10⁶ and 10⁶."""
    for token, value in sampling.bias:
        if not 0 <= token < vocabulary:
            raise ValueError(f"bias: token {token} is not in the vocabulary of {vocabulary}")
        if not math.isfinite(value) or abs(value) > 1e6:
            raise ValueError(f"bias: {value} of token {token} is not between -1e6 and 1e6")
