"""The seam between the step loop and whatever computes logits: a model with a KV cache of several sequences.

A sequence holds the keys and values of one context, addressed by position from 0 on. Calls come from one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge.openai.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens of one sequence to compute in a step."""

    sequence: int
    start: int
    """Position of the first; the sequence holds exactly those before it."""
    tokens: tuple[int, ...]
    rows: int
    """Of how many tokens, at the end, logits are wanted."""


class Model(Protocol):
    @property
    def vocabulary(self) -> Vocabulary: ...

    def begin(self, sequence: int, prompt: Sequence[int], kept: int) -> None:
        """The sequence gets a new occupant: forget all past its first `kept` positions."""
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """Make `target` hold the first `length` positions of `source`, and nothing else."""
        ...

    def remove(self, sequence: int, start: int) -> None:
        """Forget the positions from `start` on."""
        ...

    def decode(self, runs: Sequence[Run]) -> None:
        """Compute one step: all runs together. Blocks. Any exception means that the model can't be used any more."""
        ...

    def logits(self, row: int) -> NDArray[np.float32]:
        """Logits, shape (vocabulary.size,), of the row-th wanted row of the last step, counted over all runs in order.

        A view: valid until the next call of `decode`.
        """
        ...

    def close(self) -> None:
        """Free what it holds. Idempotent."""
        ...
