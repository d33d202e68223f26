"""Whether two runs parted at a floating-point tie, or at a fault.

At a difference, the row of logits behind the common prefix is computed again, one token at a time: the row that all
shapes are measured against. It is a tie exactly if logits off by no
more than the measured noise (noise.py) could make either token the winner: by the gap between their scores, or because
one lies at the edge of top-k, top-p or min-p. `Survivors.distance` gives the smallest such error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.model import Model
from bench.noise import Sample, plain_row
from edge.protocol.frames import Sampling
from edge.protocol.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Difference:
    prompt: int
    """Which of the prompts."""
    case: str
    position: int
    expected: int
    found: int
    distance: float
    """The smallest error of the logits that explains it, in their own units."""
    tie: bool


@dataclass(frozen=True, slots=True)
class Judge:
    """Holds a model of its own, since the engine's is busy."""

    model: Model
    noise: float
    min_tokens: int = 0
    """Before this many tokens an output can't end, as in the request."""

    def distance(self, sample: Sample, sampling: Sampling, expected: int, found: int) -> float:
        """`sample.output` is the common prefix."""
        vocabulary = self.model.vocabulary
        sampler = Sampler(sampling, vocabulary.size, sample.prompt)
        for token in sample.output:
            sampler.push(token)
        position = len(sample.output)
        allowed = None
        if position < self.min_tokens:
            allowed = np.ones(vocabulary.size, np.bool_)
            allowed[list(vocabulary.ends)] = False
        row = plain_row(self.model, sample)
        return sampler.survivors(row, position, allowed).distance(expected, found)

    def judge(
        self,
        prompt: int,
        case: str,
        sample: Sample,
        sampling: Sampling,
        found: Sequence[int],
        at: int,
    ) -> Difference:
        """`sample.output` is the reference; `found` parts from it at `at`. An early end is no tie."""
        expected = sample.output[at] if at < len(sample.output) else -1
        token = found[at] if at < len(found) else -1
        if -1 in (expected, token):
            return Difference(prompt, case, at, expected, token, float("inf"), False)
        prefix = Sample(sample.prompt, sample.output[:at])
        distance = self.distance(prefix, sampling, expected, token)
        return Difference(prompt, case, at, expected, token, distance, distance <= self.noise)
