"""One stream of a drafter that is a language model: its tokens so far, and what is picked behind them by the target's
own rule, with its noise, penalties and grammar.

    tokens   prompt + output ──► Picker.pick ──► proposed, and appended
                     ▲ feed, rollback
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from edge.drafters.base import Proposal
from edge.openai.structured import matcher
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Sampling
from edge.protocol.sampling import Sampler


class Picker(Protocol):
    """The model, as one stream sees it."""

    def pick(self, tokens: Sequence[int], sampler: Sampler, position: int) -> Proposal | None:
        """The next token behind `tokens`, output position `position`. None: nothing, now at least."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


class SampledContinuation:
    """Implements `Continuation`."""

    def __init__(
        self,
        picker: Picker,
        vocabulary: Vocabulary,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        committed: Sequence[int],
        coupled: bool,
    ) -> None:
        # Top-1 still honours penalties and bias: they change what the target picks, whatever the noise.
        rule = sampling if coupled else replace(sampling, temperature=0.0)
        # Without its grammar a draft of JSON would miss wherever the model would rather write prose.
        self._sampler = Sampler(rule, vocabulary.size, prompt, matcher(sampling.grammar, vocabulary))
        self._picker = picker
        self._ends = vocabulary.ends
        self._tokens = list(prompt)
        self._prompt_length = len(prompt)
        self._closed = False
        self.feed(committed)

    def propose(self) -> Proposal | None:
        position = len(self._tokens) - self._prompt_length
        if self._closed or (position and self._tokens[-1] in self._ends):  # nothing comes behind an end
            return None
        proposal = self._picker.pick(self._tokens, self._sampler, position)
        if proposal is not None:
            self.feed([proposal.token])
        return proposal

    def rollback(self, length: int) -> None:
        count = len(self._tokens) - self._prompt_length - length
        if count > 0:
            del self._tokens[self._prompt_length + length :]
            self._sampler.pop(count)

    def feed(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._tokens.append(token)
            self._sampler.push(token)

    def close(self) -> None:
        self._closed = True
        self._picker.close()
