"""The target's tokens of one stream: picked by the sampling rule, cut where the output ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.base import Request
from edge.openai.structured import matcher
from edge.openai.text import OutputText
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Reason, TokenLogprob
from edge.protocol.sampling import NothingLeft, Sampler
from edge.protocol.verifying import accept, plausible


@dataclass(frozen=True, slots=True)
class Picked:
    """What a step gave."""

    tokens: tuple[int, ...]
    """Accepted candidates and the target's own; cut behind the token that ends the output."""
    logprobs: tuple[TokenLogprob, ...]
    reason: Reason | None
    """Why the output ends here; None: it goes on."""
    error: str | None = None
    """A code of edge.protocol.errors, with reason `error`."""


class Output:
    """Raises ValueError if the request's sampling doesn't fit the vocabulary."""

    def __init__(self, request: Request, vocabulary: Vocabulary, *, max_tokens: int) -> None:
        """`max_tokens`: of the output, when it is less than was asked for."""
        constraint = matcher(request.sampling.grammar, vocabulary)
        self._sampler = Sampler(request.sampling, vocabulary.size, request.prompt, constraint)
        self._vocabulary = vocabulary
        self._text = OutputText(request.stop)
        self._stop = bool(request.stop)
        self._min_tokens = request.min_tokens
        self._max_tokens = max_tokens
        self._logprobs = request.logprobs
        self._typical = request.rule == "typical"
        self._length = 0
        self._allowed: NDArray[np.bool_] | None = None
        if request.min_tokens:
            self._allowed = np.ones(vocabulary.size, np.bool_)
            self._allowed[list(vocabulary.ends)] = False

    @property
    def kept_bytes(self) -> int | None:
        """Where a stop string cut the text, in UTF-8 bytes."""
        return self._text.kept_bytes

    def replay(self, committed: Sequence[int]) -> Reason | None:
        """Take tokens that were picked elsewhere; says why the output ends with them, if it does."""
        reason: Reason | None = None
        for token in committed:
            self._sampler.push(token)
            reason = reason or self._append(token)
        return "length" if self._max_tokens <= 0 else reason

    def advance(self, candidates: Sequence[int], logits: Callable[[int], NDArray[np.float32]]) -> Picked:
        """Pick the tokens of a step. `logits(i)`, shape (V,), was computed behind the first i candidates."""
        head = self._length
        logprobs: list[TokenLogprob] = []

        def pick(i: int) -> int:
            row = logits(i)
            allowed = self._allowed if head + i < self._min_tokens else None
            if self._typical and i < len(candidates) and _passes(row, candidates[i], allowed):
                token = candidates[i]
            else:
                token = self._token(row, head + i, allowed)
            self._sampler.push(token)
            if self._logprobs is not None:
                logprobs.append(self._sampler.logprobs(row, token, self._logprobs))
            return token

        tokens = accept(candidates, pick, bonus=not self._typical)
        for count, token in enumerate(tokens, start=1):
            reason = self._append(token)
            if reason is not None:
                return Picked(tuple(tokens[:count]), tuple(logprobs[:count]), reason)
        return Picked(tuple(tokens), tuple(logprobs), None)

    def _token(self, row: NDArray[np.float32], position: int, allowed: NDArray[np.bool_] | None) -> int:
        try:
            return self._sampler.pick(row, position, allowed)
        except NothingLeft:
            if allowed is None or self._sampler.sampling.grammar is None:
                raise
            return self._sampler.pick(row, position)  # the grammar has come to its end, and `min_tokens` gives way

    def _append(self, token: int) -> Reason | None:
        self._length += 1
        stopped = self._stop and self._push_text(token)
        if stopped or token in self._vocabulary.ends:
            return "stop"
        return "length" if self._length >= self._max_tokens else None

    def _push_text(self, token: int) -> bool:
        stopped = self._text.push(self._vocabulary.piece(token), stoppable=self._length >= self._min_tokens)
        self._text.take()  # only what may begin a stop string is kept here
        return stopped


def _passes(row: NDArray[np.float32], token: int, allowed: NDArray[np.bool_] | None) -> bool:
    return (allowed is None or bool(allowed[token])) and plausible(row, token)
