"""Drafts by a model with another tokenizer than the target's, handed over as text.

(Universal assisted generation; Timor et al., arXiv 2502.05202. The target decides as ever, so nothing can be lost.)

    target's tokens ──pieces──► text ──encode──► the drafter's tokens
                                                        │ drafts on
    proposal ◄── first whole token ◄──encode── text ◄───┘

1. What is proposed depends on the target's tokens so far alone: their text is encoded anew each time. Drafts whose
   tokens are what the encoding gives again are kept, so mostly nothing is computed twice.
2. A token of the target's is whole once another word begins behind it: before that, more text might still change it.
3. The last word, and half a character, are held back: if the drafter says them again by itself, it cuts them its own
   way. If it doesn't, the word is encoded with the rest.
4. Control tokens travel in the markup that both sides write them with; those that only one side has are left out.
5. The drafter says its likeliest token: the target's noise is by token id and can't be shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from edge.drafters.base import Continuation, Drafter, Proposal
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Sampling
from edge.protocol.ledger import agreement

_AHEAD: Final = 32
"""Tokens that the drafter drafts for one of the target's, at most, behind what was held back."""
_ANCHOR: Final = 8
"""Tokens before a draft that are encoded with it: what a token is can depend on what stands before it."""

_WORD: Final = 48
"""Characters at the end among which the last word is looked for."""
_LAST_WORD: Final = re.compile(r"\s*\S*\Z")
_INSIDE: Final = bytes(range(0x80, 0xC0))
"""Bytes inside a UTF-8 character."""

Markup = Mapping[int, str]
"""How control tokens are written in a templated prompt, by id."""


def shared_pieces(one: Vocabulary, other: Vocabulary) -> int:
    """Texts that are a token in both. With none of them nothing can align."""
    return len({one.piece(i) for i in range(one.size)} & {other.piece(i) for i in range(other.size)} - {b""})


class ByTextDrafter:
    """Wraps `drafter`, which must have a vocabulary; closes it too."""

    def __init__(
        self,
        drafter: Drafter,
        vocabulary: Vocabulary,
        *,
        markup: Markup | None = None,
        own: Markup | None = None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """`vocabulary` and `markup` are the target's, `own` the drafter's markup. `release` is called at the end.

        Raises ValueError if the drafter has no tokenizer.
        """
        if drafter.vocabulary is None:
            raise ValueError("this drafter has no tokenizer: it drafts in the target's ids anyway")
        self.name = f"{drafter.name}, by text"
        self.vocabulary: Vocabulary | None = vocabulary
        self.fingerprint = vocabulary.fingerprint
        self.target = vocabulary
        self.theirs = drafter.vocabulary
        self._drafter = drafter
        self._release = release
        known = {text for text in (own or {}).values() if text}
        self._markup = {token: text for token, text in (markup or {}).items() if text in known}
        target_ends = {text: token for token, text in self._markup.items() if token in vocabulary.ends}
        self.ends = {
            token: target_ends[text]
            for token, text in (own or {}).items()
            if token in drafter.vocabulary.ends and text in target_ends
        }
        """The drafter's end tokens → the target's, where both write them alike."""

    def begin(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        committed: Sequence[int] = (),
        coupled: bool = True,
    ) -> ByTextContinuation:
        """Of `sampling` the grammar alone is passed on: the rest speaks of the target's ids."""
        rule = Sampling(temperature=0.0, seed=sampling.seed, grammar=sampling.grammar)
        continuation = self._drafter.begin(self._translated(prompt), rule, coupled=False)
        return ByTextContinuation(self, continuation, prompt, committed)

    def close(self) -> None:
        self._drafter.close()
        self._release()

    def _translated(self, prompt: Sequence[int]) -> list[int]:
        parts = (self._markup.get(token, "").encode() or self.target.piece(token) for token in prompt)
        ids = self.theirs.encode(b"".join(parts).decode(errors="ignore"), special=True)
        return ids or self.theirs.encode(" ")  # a model needs something to go on from


class ByTextContinuation:
    def __init__(
        self, drafter: ByTextDrafter, inner: Continuation, prompt: Sequence[int], committed: Sequence[int]
    ) -> None:
        self._drafter = drafter
        self._inner = inner
        self._prompt = tuple(prompt[-_ANCHOR:])
        self._output: list[int] = list(committed)
        self._held: list[int] = []
        """The drafter's tokens that its continuation holds: fed and proposed."""
        self._confidences: dict[int, float] = {}
        """Of those that it has proposed, by place."""
        self._closed = False

    def propose(self) -> Proposal | None:
        if self._closed or (self._output and self._output[-1] in self._drafter.target.ends):
            return None
        proposal = self._next()
        if proposal is not None:
            self._output.append(proposal.token)
        return proposal

    def rollback(self, length: int) -> None:
        del self._output[length:]

    def feed(self, tokens: Sequence[int]) -> None:
        self._output += tokens

    def close(self) -> None:
        self._closed = True
        self._inner.close()

    def _next(self) -> Proposal | None:
        text, half = _whole(b"".join(map(self._drafter.target.piece, self._output)))
        word = _LAST_WORD.search(text[-_WORD:])
        start = len(text) if word is None else max(0, len(text) - _WORD) + word.start()
        if start < len(text):
            missed, proposal = self._behind(text[:start], text[start:].encode() + half)
            if not missed:
                return proposal
        return self._behind(text, half)[1]

    def _behind(self, text: str, stem: bytes) -> tuple[bool, Proposal | None]:
        """What the drafter says behind `text`, if that begins with `stem`, and else that it missed."""
        context = self._drafter.theirs.encode(text)
        self._place(context)
        drafted, confidence = b"", 1.0
        for place in range(len(context), len(context) + len(stem) + _AHEAD):
            token = self._drafted(place)
            if token is None:
                return False, None
            if token in self._drafter.theirs.ends:
                if len(drafted) > len(stem):
                    found = self._first(drafted[len(stem) :], final=True)
                    return False, None if found is None else Proposal(found, confidence)
                known = self._drafter.ends.get(token) if drafted == stem else None
                return drafted != stem, None if known is None else Proposal(known, self._confidences[place])
            drafted += self._drafter.theirs.piece(token)
            if not (drafted.startswith(stem) or stem.startswith(drafted)):
                return True, None
            if len(drafted) > len(stem):
                confidence *= self._confidences[place]
                found = self._first(drafted[len(stem) :], final=False)
                if found is not None:
                    return False, Proposal(found, confidence)
        found = self._first(drafted[len(stem) :], final=True)  # no word ends: a script without spaces
        return False, None if found is None else Proposal(found, confidence)

    def _place(self, context: list[int]) -> None:
        """Let the drafter stand behind `context`. What it has drafted there already stays."""
        agreed = agreement(self._held, context)
        if agreed < len(context):
            self._cut(agreed)
            self._inner.feed(context[agreed:])
            self._held += context[agreed:]
        end = len(context)
        while end in self._confidences:
            end += 1
        self._cut(end)  # what stands there was fed, not drafted

    def _drafted(self, place: int) -> int | None:
        if place == len(self._held):
            proposal = self._inner.propose()
            if proposal is None:
                return None
            self._held.append(proposal.token)
            self._confidences[place] = proposal.confidence
        return self._held[place]

    def _cut(self, length: int) -> None:
        if length < len(self._held):
            self._inner.rollback(length)
            del self._held[length:]
            self._confidences = {at: value for at, value in self._confidences.items() if at < length}

    def _first(self, drafted: bytes, *, final: bool) -> int | None:
        """The target's first token of `drafted`, if it is whole. `final`: no more text will lengthen it."""
        encode, piece = self._drafter.target.encode, self._drafter.target.piece
        if not final and (word := _LAST_WORD.search(_whole(drafted)[0])) is not None:
            drafted = _whole(drafted)[0][: word.start()].encode()
        before = b"".join(map(piece, (*self._prompt, *self._output)[-_ANCHOR:])).lstrip(_INSIDE)
        ids, at = encode(_whole(before + drafted)[0]), 0
        while ids and at < len(before):
            at += len(piece(ids.pop(0)))
        if at != len(before):  # a token spans the border: the target has already chosen another way to write it
            ids = encode(_whole(drafted)[0])
        if not ids or not piece(ids[0]) or not drafted.startswith(piece(ids[0])):
            return None
        return ids[0]


def _whole(data: bytes) -> tuple[str, bytes]:
    """The text, and the bytes at its end that only begin a character."""
    for length in range(len(data), max(-1, len(data) - 4), -1):
        try:
            return data[:length].decode(), data[length:]
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""
