"""Committed tokens to the text of a stream, by whoever knows the vocabulary: the device, or the cloud."""

from __future__ import annotations

from collections.abc import Sequence

from edge.events import Origin, Token
from edge.openai.text import OutputText
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Commit


class Transcript:
    """`vocabulary` None: the text comes with the commits. Tokens before `min_tokens` can't complete a stop string."""

    def __init__(self, vocabulary: Vocabulary | None, stop: Sequence[str] = (), *, min_tokens: int = 0) -> None:
        self._vocabulary = vocabulary
        self._output = OutputText(stop)
        self._min_tokens = min_tokens
        self._rest = ""

    def skip(self, tokens: Sequence[int]) -> None:
        """Output that the caller has already: it only sets the stage for what follows."""
        for position, token in enumerate(tokens):
            self._push(position, token)

    def add(self, new: Sequence[int], kinds: Sequence[Origin], start: int, frame: Commit) -> tuple[Token, ...]:
        """What a commit brought that is new: tokens from position `start` on."""
        if self._vocabulary is None:
            texts = _cut(frame)[len(frame.tokens) - len(new) :]
        else:
            texts = [self._push(start + i, token) for i, token in enumerate(new)]
        if not frame.tokens:
            self._rest += frame.text
        return tuple(Token(token, kind, text) for token, kind, text in zip(new, kinds, texts, strict=True))

    def end(self, kept_bytes: int | None) -> str:
        """The rest, once the cloud has said where the text ends."""
        if self._vocabulary is None:
            return self._rest
        if kept_bytes is not None:
            self._output.cut(kept_bytes)
        return self._output.take(final=True)

    def _push(self, position: int, token: int) -> str:
        assert self._vocabulary is not None  # noqa: S101
        self._output.push(self._vocabulary.piece(token), stoppable=position + 1 >= self._min_tokens)
        return self._output.take()


def _cut(frame: Commit) -> list[str]:
    """A commit's text by token; all of it with the last one if the cloud doesn't say."""
    if len(frame.cuts) != len(frame.tokens):
        return [*("" for _ in frame.tokens[:-1]), frame.text] if frame.tokens else []
    texts, at = list[str](), 0
    for length in frame.cuts:
        texts.append(frame.text[at : at + length])
        at += length
    return texts


def origins(tokens: int, *, agreed: int, accepted: int, contradicted: bool) -> tuple[Origin, ...]:
    """Of the `tokens` that a commit brought, `agreed` equal drafts, of which `accepted` were verified in time."""
    accepted = min(accepted, agreed)
    kinds: list[Origin] = ["accepted"] * accepted
    kinds += ["cloud"] * (tokens - accepted)
    if contradicted:
        kinds[agreed] = "corrected"
    return tuple(kinds)
