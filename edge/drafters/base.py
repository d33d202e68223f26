"""The seam between a drafting runtime and whatever proposes tokens.

Calls block and take as long as a model takes; the runtime makes them in a worker thread, one at a time per drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Sampling


@dataclass(frozen=True, slots=True)
class Proposal:
    token: int
    confidence: float
    """The drafter's own probability of it, 0 to 1."""


class Continuation(Protocol):
    """One stream's drafting state. Its length counts output tokens, drafted and fed alike, without the prompt."""

    def propose(self) -> Proposal | None:
        """Draft the next token and count it in. None: nothing to propose until `feed` brings more."""
        ...

    def rollback(self, length: int) -> None:
        """Forget all output tokens past the first `length`."""
        ...

    def feed(self, tokens: Sequence[int]) -> None:
        """Append tokens that the target chose."""
        ...

    def close(self) -> None:
        """Free what it holds; it proposes nothing any more. Idempotent."""
        ...


class Drafter(Protocol):
    """A source of drafts for any number of streams."""

    name: str
    fingerprint: str
    """Of its vocabulary; empty if its drafts are in the target's ids by construction."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Its tokenizer, when it has one: then the device templates prompts itself."""
        ...

    def begin(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        committed: Sequence[int] = (),
        coupled: bool = True,
    ) -> Continuation:
        """Start drafting behind `prompt` and `committed`. `sampling.seed` is set.

        `coupled`: propose the token that the target's rule would pick from the drafter's logits (the same noise);
        otherwise the drafter's top-1. At temperature 0 the two are the same.
        """
        ...

    def close(self) -> None: ...
