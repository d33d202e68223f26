"""The committed output of one stream: the only text there is. Both sides keep one, and the cloud's is the truth.

Rules:
1. It only grows. Nothing that was committed is ever taken back.
2. What arrives is addressed by position, so it may overlap what is held; the overlap must be equal. This makes every
   commit idempotent: after a lost connection the cloud simply sends again from where the edge says it is.
3. It never has a hole: a commit that starts past the end is a protocol error, not something to wait out.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.protocol.errors import Contradiction, Gap


class Ledger:
    """Output tokens by position; position 0 is the first token after the prompt."""

    def __init__(self, committed: Sequence[int] = ()) -> None:
        self.tokens: list[int] = list(committed)

    def __len__(self) -> int:
        return len(self.tokens)

    def append(self, tokens: Sequence[int]) -> None:
        """The cloud's way to grow: right behind the head."""
        self.tokens.extend(tokens)

    def apply(self, start: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """The edge's way: take a commit and return what was new in it. Raises Gap or Contradiction."""
        held = len(self.tokens)
        if start > held:
            raise Gap(f"commit starts at {start}, but only {held} tokens are held")
        overlap = min(held - start, len(tokens))
        if self.tokens[start : start + overlap] != list(tokens[:overlap]):
            raise Contradiction(f"commit at {start} differs from what is held there")
        new = tuple(tokens[overlap:])
        self.tokens.extend(new)
        return new


def agreement(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two runs of tokens."""
    length = min(len(a), len(b))
    for i in range(length):
        if a[i] != b[i]:
            return i
    return length
