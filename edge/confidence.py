"""How likely unconfirmed drafts are right: what the drafter says, corrected by what became of it. Pure.

A drafter's own probability of its token says which tokens are doubtful, but not how often the target agrees: 4-bit
weights, another size and coupled noise all shift that. So it is calibrated on the answers themselves: confidences fall
into ten ranges, and each keeps how often its drafts agreed, from its own middle as a first guess. What one answer
taught serves the next (edge/runtime.py). A token that stands behind others is right only if all of them are: its
survival is the product.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_RANGES: Final = 10
_PRIOR: Final = 4.0
"""Comparisons that the first guess is worth."""
_MEMORY: Final = 0.99
"""Share of a range's counts that is kept at each comparison: it remembers about the last hundred."""


@dataclass(slots=True)
class Calibration:
    """The chance that a draft agrees, by the drafter's confidence in it."""

    _agreed: list[float] = field(default_factory=lambda: [_PRIOR * (i + 0.5) / _RANGES for i in range(_RANGES)])
    _compared: list[float] = field(default_factory=lambda: [_PRIOR] * _RANGES)

    def chance(self, confidence: float) -> float:
        i = _range(confidence)
        return self._agreed[i] / self._compared[i]

    def add(self, confidence: float, agreed: bool) -> None:
        """A draft was compared behind a prefix that was right."""
        i = _range(confidence)
        self._agreed[i] = _MEMORY * self._agreed[i] + agreed
        self._compared[i] = _MEMORY * self._compared[i] + 1


@dataclass(slots=True)
class Tail:
    """The confidences of a stream's unconfirmed drafts, in order."""

    calibration: Calibration = field(default_factory=Calibration)
    survival: float = 1.0
    """The chance that all of them are right."""
    _confidences: deque[float] = field(default_factory=deque)

    def draft(self, confidence: float) -> None:
        self._confidences.append(confidence)
        self.survival *= self.calibration.chance(confidence)

    def commit(self, agreed: int, *, contradicted: bool, cleared: bool) -> None:
        """The first `agreed` were right; `contradicted`: the next wasn't; `cleared`: the others are gone."""
        for _ in range(agreed):
            self.calibration.add(self._confidences.popleft(), agreed=True)
        if contradicted:
            self.calibration.add(self._confidences[0], agreed=False)
        if cleared:
            self._confidences.clear()
        self.survival = 1.0
        for confidence in self._confidences:
            self.survival *= self.calibration.chance(confidence)


def _range(confidence: float) -> int:
    return min(_RANGES - 1, max(0, int(confidence * _RANGES)))
