"""Drafts without a model: what followed the last time that the text read like this (prompt lookup decoding).

The longer two texts have run in parallel, the likelier they go on: behind a match of l tokens, n more hold with a
chance of about l/(l + n). A draft that goes on where the last one came from is one token deeper in the same match.

Good where output repeats its input: code edits, summaries, extraction, chat about a document. Costs microseconds and no
memory to speak of, and its drafts are in the target's ids by construction, so any device can do it, in any vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.drafters.base import Proposal
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Sampling

Gram = tuple[int, ...]


class NgramDrafter:
    """Looks for the last `longest` tokens, then for fewer, down to `shortest`; of several places the latest counts."""

    name = "ngram"
    fingerprint = ""
    vocabulary: Vocabulary | None = None

    def __init__(self, *, longest: int = 4, shortest: int = 2) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"1 <= shortest <= longest must hold, not {shortest} and {longest}")
        self._lengths = range(longest, shortest - 1, -1)

    def begin(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        committed: Sequence[int] = (),
        coupled: bool = True,
    ) -> NgramContinuation:
        """`sampling` and `coupled` say nothing to it: it has no logits."""
        return NgramContinuation((*prompt, *committed), len(prompt), self._lengths)

    def close(self) -> None:
        pass


class NgramContinuation:
    """Its tokens depend on the tokens so far alone. Each costs one look-up a length, however long the text."""

    def __init__(self, tokens: Sequence[int], prompt_length: int, lengths: range) -> None:
        self._tokens: list[int] = []
        self._prompt_length = prompt_length
        self._lengths = lengths
        self._index: dict[Gram, list[int]] = {}
        """For each gram the positions right behind its occurrences, ascending: the last may be the end of the text."""
        self._source = -1
        """Where the run that is being copied goes on, and how long the match is."""
        self._matched = 0
        self._closed = False
        self.feed(tokens)

    def propose(self) -> Proposal | None:
        for length in self._lengths:
            places = self._index.get(tuple(self._tokens[-length:]), ()) if len(self._tokens) >= length else ()
            if len(places) > 1:  # the last one is the end itself
                return self._copy(places[-2], length)
        return None

    def _copy(self, place: int, length: int) -> Proposal:
        self._matched = max(length, self._matched + 1) if place == self._source else length
        self._source = place + 1
        token = self._tokens[place]
        self._push(token)
        return Proposal(token, self._matched / (self._matched + 1))

    def rollback(self, length: int) -> None:
        self._source = -1
        for _ in range(self._prompt_length + length, len(self._tokens)):
            self._pop()

    def feed(self, tokens: Sequence[int]) -> None:
        if self._closed:
            return
        for token in tokens:
            self._push(token)

    def close(self) -> None:
        self._closed = True
        self._index.clear()
        self._tokens.clear()

    def _push(self, token: int) -> None:
        self._tokens.append(token)
        for gram in self._grams():
            self._index.setdefault(gram, []).append(len(self._tokens))

    def _pop(self) -> None:
        for gram in self._grams():
            places = self._index[gram]
            places.pop()
            if not places:
                del self._index[gram]
        self._tokens.pop()

    def _grams(self) -> list[Gram]:
        """Those that end with the text."""
        return [tuple(self._tokens[-n:]) for n in self._lengths if len(self._tokens) >= n]
