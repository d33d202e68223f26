"""A drafter that is a small language model, run by llama.cpp.

Several streams share one context; each that drafts has a seat, a sequence of the KV cache:

    cache   0            computed              len(tokens)
            │ in the KV    │ fed, not computed   │
            └──────── tokens: prompt + output ───┘

1. `feed` and `rollback` only move these marks; `propose` runs the model over all not computed yet, in one batch.
2. A rollback cuts the sequence where it is told to, so what is drafted next sees exactly the tokens that are left.
3. A seat that is given back keeps its tokens. The next stream takes the seat that agrees longest with its prompt: the
   turns of a conversation don't compute their history again.
4. What the chat template puts before every question is computed at the start, for all seats: else the cloud would be
   half through a first answer before a small CPU has caught up.
5. More streams than seats, or a full context: no drafts for that stream, and nothing else. Drafts are hints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.drafters.base import Proposal
from edge.drafters.sampled import SampledContinuation
from edge.llama import Context, ContextSettings, LlamaError, Model
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Message, Sampling
from edge.protocol.ledger import agreement
from edge.protocol.sampling import NothingLeft, Sampler


@dataclass(slots=True)
class _Seat:
    sequence: int
    tokens: list[int] = field(default_factory=list)
    """What the KV cache holds of it."""
    taken: bool = False


class LlamaCppDrafter:
    """`streams` seats of `context` tokens each."""

    def __init__(
        self,
        path: Path,
        *,
        streams: int = 2,
        context: int = 2048,
        threads: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Load the model: seconds, while `progress` is told the share that is loaded. Raises edge.llama.LlamaError."""
        self._model = Model(path, progress=progress)
        settings = ContextSettings(sequences=streams, tokens=streams * context, threads=threads)
        try:
            self._cache = Context(self._model, settings)
        except LlamaError:
            self._model.close()
            raise
        self._limit = context
        self._batch = settings.batch_tokens
        self._seats = [_Seat(sequence) for sequence in range(streams)]
        self.name = path.stem
        self.vocabulary: Vocabulary = self._model.vocabulary
        self.fingerprint = self.vocabulary.fingerprint
        self.markup = self._model.vocabulary.markup
        self._prepare_seats()

    def begin(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        committed: Sequence[int] = (),
        coupled: bool = True,
    ) -> SampledContinuation:
        picker = _Picker(self)
        return SampledContinuation(picker, self.vocabulary, prompt, sampling, committed=committed, coupled=coupled)

    def close(self) -> None:
        self._cache.close()
        self._model.close()

    def take_seat(self, tokens: Sequence[int]) -> _Seat | None:
        """The free seat that holds the longest beginning of `tokens`."""
        free = [seat for seat in self._seats if not seat.taken]
        if not free:
            return None
        seat = max(free, key=lambda s: (agreement(s.tokens, tokens), -len(s.tokens)))
        seat.taken = True
        return seat

    def _prepare_seats(self) -> None:
        """Compute what all conversations begin with."""
        render = self.vocabulary.render
        one, other = render([Message("user", "a")]), render([Message("user", "b")])
        prefix = one[: agreement(one, other)]
        first, *rest = self._seats
        if self.logits(first, prefix) is None:
            return
        for seat in rest:
            self._cache.copy(first.sequence, seat.sequence, len(prefix))
            seat.tokens = list(prefix)

    def logits(self, seat: _Seat, tokens: Sequence[int]) -> NDArray[np.float32] | None:
        """Logits, (V,), behind `tokens`; a view until the next call. None: they don't fit the context."""
        if not 0 < len(tokens) <= self._limit:
            return None
        # The last token is computed anew even if the cache has it: its logits are not kept.
        kept = len(seat.tokens)
        if kept >= len(tokens) or seat.tokens != tokens[:kept]:
            kept = min(agreement(seat.tokens, tokens), len(tokens) - 1)
            self._cache.remove(seat.sequence, kept)
            del seat.tokens[kept:]
        while len(seat.tokens) < len(tokens):
            start = len(seat.tokens)
            part = tokens[start : start + self._batch]
            end = start + len(part)
            wanted = [position == len(tokens) - 1 for position in range(start, end)]
            self._cache.decode(part, range(start, end), [seat.sequence] * len(part), wanted)
            seat.tokens.extend(part)
        return self._cache.logits(0)


@dataclass(slots=True)
class _Picker:
    """A stream's seat, from its first draft on."""

    drafter: LlamaCppDrafter
    seat: _Seat | None = None

    def pick(self, tokens: Sequence[int], sampler: Sampler, position: int) -> Proposal | None:
        self.seat = self.seat or self.drafter.take_seat(tokens)
        logits = None if self.seat is None else self.drafter.logits(self.seat, tokens)
        if logits is None:
            return None
        try:
            token = sampler.pick(logits, position)
        except NothingLeft:  # the output has left the grammar as this side knows it
            return None
        return Proposal(token, probability(logits, token))

    def close(self) -> None:
        if self.seat is not None:
            self.seat.taken = False
        self.seat = None


def probability(logits: NDArray[np.float32], token: int) -> float:
    """The softmax of logits, (V,), at `token`."""
    top = logits.max()
    return float(np.exp(logits[token] - top) / np.exp(logits - top).sum())
