"""Windows of a text in which a model's perplexity is taken, as `edge.evaluate` takes it: the first half is context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

WINDOW: Final = 256
"""Tokens. Of each window the second half counts."""


def windows(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids) - WINDOW + 1, WINDOW // 2):
        yield ids[start : start + WINDOW]
