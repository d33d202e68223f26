"""OpenAI's "predicted outputs" as what they are: a draft of the whole answer. Pure.

The target checks as much of the prediction as it agrees with. Where the answer goes another way, the prediction is
taken up again behind the next few tokens that occur in it, as its author expects of an edited file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_ANCHOR: Final = 3
"""Tokens that must agree before a prediction is taken up again."""
_AHEAD: Final = 64
"""Tokens that are offered past the output: more than an engine checks in the time until the next offer."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft for `Generation.offer`, or for a device's `draft` frame."""

    epoch: int
    start: int
    tokens: tuple[int, ...]


class Predictor:
    """The drafts of one output."""

    def __init__(self, prediction: Sequence[int]) -> None:
        self._prediction = list(prediction)
        self._output: list[int] = []
        self._at: int | None = 0
        """Where in the prediction the output stands; None: nowhere."""
        self._epoch = 0
        self._sent = 0
        """End of what was offered, a position of the output."""

    def push(self, tokens: Sequence[int]) -> Offer | None:
        """The output has grown (or begins: no tokens). What to offer now, if there is anything new."""
        for token in tokens:
            self._output.append(token)
            self._follow(token)
        head = len(self._output)
        if self._at is None:
            return None
        start = max(self._sent, head)
        end = min(head + _AHEAD, head + len(self._prediction) - self._at)
        if end <= start or (end - start < _AHEAD // 2 and end < head + len(self._prediction) - self._at):
            return None
        self._sent = end
        first = self._at + start - head
        return Offer(self._epoch, start, tuple(self._prediction[first : first + end - start]))

    def _follow(self, token: int) -> None:
        if self._at is not None and self._at < len(self._prediction) and self._prediction[self._at] == token:
            self._at += 1
            return
        passed = self._at or 0
        self._at = self._anchor(passed)
        if self._at is not None:
            self._epoch += 1  # what was offered belongs to another text
            self._sent = len(self._output)

    def _anchor(self, passed: int) -> int | None:
        """Behind the output's last tokens in the prediction: the first place past `passed`, else the first of all."""
        last = self._output[-_ANCHOR:]
        if len(last) < _ANCHOR:
            return None
        places = [
            at + _ANCHOR for at in range(len(self._prediction) - _ANCHOR) if self._prediction[at : at + _ANCHOR] == last
        ]
        return next((at for at in places if at > passed), places[0] if places else None)
