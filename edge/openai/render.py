"""Requests of the OpenAI API to prompts and sampling; output tokens to responses and stream chunks. Pure.

Text is given out in whole characters and never a part of a stop string (text.py), so a chunk may hold the text of
several tokens, or none of its own token's yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from edge.openai.schemas import ChatMessage, ChatRequest
from edge.openai.text import OutputText
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Message, Reason, Sampling, TokenLogprob, Usage

DONE: Final = b"data: [DONE]\n\n"
T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


def messages(chat: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """The conversation as the template takes it: `developer` is OpenAI's new name of `system`, which templates know."""
    return tuple(Message("system" if m.role == "developer" else m.role, m.text) for m in chat)


def sampling(chat: ChatRequest, *, seed: int, choice: int = 0) -> Sampling:
    """The sampling rule's inputs. `seed` is used if the request has none; a negative one counts modulo 2^63."""
    given = Sampling()
    return Sampling(
        temperature=_or(chat.temperature, given.temperature),
        top_k=max(0, _or(chat.top_k, given.top_k)),  # -1 is vLLM's "all"
        # The rule takes top_p > 0. Zero keeps the likeliest token alone, as any value below its probability does.
        top_p=max(1e-9, _or(chat.top_p, given.top_p)),
        min_p=_or(chat.min_p, given.min_p),
        presence_penalty=_or(chat.presence_penalty, given.presence_penalty),
        frequency_penalty=_or(chat.frequency_penalty, given.frequency_penalty),
        repetition_penalty=_or(chat.repetition_penalty, given.repetition_penalty),
        bias=tuple(sorted((chat.logit_bias or {}).items())),
        seed=seed if chat.seed is None else chat.seed % 2**63,
        choice=choice,
    )


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


class TopLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class Logprobs(Struct, frozen=True):
    content: list[ContentLogprob]
    refusal: None = None


class Delta(Struct, frozen=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    index: int
    delta: Delta
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class UsageBody(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Chunk(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageBody | UnsetType | None = UNSET
    object: str = "chat.completion.chunk"


class AnswerMessage(Struct, frozen=True):
    content: str
    role: str = "assistant"
    refusal: None = None


class Choice(Struct, frozen=True):
    index: int
    message: AnswerMessage
    finish_reason: str
    logprobs: Logprobs | None = None


class Completion(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: UsageBody
    object: str = "chat.completion"


class ChoiceText:
    """One choice's output, token by token."""

    def __init__(
        self, vocabulary: Vocabulary, *, stop: Sequence[str] = (), min_tokens: int = 0, logprobs: bool = False
    ) -> None:
        self._vocabulary = vocabulary
        self._text = OutputText(stop)
        self._min_tokens = min_tokens
        self._with_logprobs = logprobs
        self._length = 0

    def push(self, tokens: Sequence[int]) -> str:
        """Text that can be shown once these tokens are out."""
        for token in tokens:
            self._length += 1
            self._text.push(self._vocabulary.piece(token), stoppable=self._length >= self._min_tokens)
        return self._text.take()

    def finish(self, kept_bytes: int | None) -> str:
        """The rest of the text: what was withheld, up to the cut that the engine made."""
        if kept_bytes is not None:
            self._text.cut(kept_bytes)
        return self._text.take(final=True)

    def logprobs(self, entries: Sequence[TokenLogprob]) -> Logprobs | None:
        if not self._with_logprobs:
            return None
        return Logprobs(
            [
                ContentLogprob(
                    *self._named(entry.token, entry.logprob),
                    [TopLogprob(*self._named(token, logprob)) for token, logprob in entry.top],
                )
                for entry in entries
            ]
        )

    def _named(self, token: int, logprob: float) -> tuple[str, float, list[int]]:
        piece = self._vocabulary.piece(token)
        # OpenAI's clients know of no -Infinity in JSON; -9999 is what its API sends for "next to never".
        return piece.decode(errors="replace"), max(-9999.0, logprob), list(piece)


@dataclass(frozen=True, slots=True)
class StreamRenderer:
    """Server-sent events of one response, as bytes."""

    id: str
    created: int
    model: str
    include_usage: bool = False

    def begin(self, index: int) -> bytes:
        return self._event([ChunkChoice(index, Delta(role="assistant", content=""))])

    def text(self, index: int, text: str, logprobs: Logprobs | None = None) -> bytes:
        return self._event([ChunkChoice(index, Delta(content=text), logprobs)])

    def finish(self, index: int, reason: Reason) -> bytes:
        return self._event([ChunkChoice(index, Delta(), finish_reason=reason)])

    def usage(self, usages: Sequence[Usage]) -> bytes:
        return _sse(_encode(Chunk(self.id, self.created, self.model, [], total(usages))))

    def _event(self, choices: list[ChunkChoice]) -> bytes:
        # OpenAI's API says usage: null in the other chunks when usage was asked for, and leaves it out otherwise.
        return _sse(_encode(Chunk(self.id, self.created, self.model, choices, None if self.include_usage else UNSET)))


def _sse(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def completion(id: str, created: int, model: str, choices: list[Choice], usages: Sequence[Usage]) -> bytes:  # noqa: A002
    return _encode(Completion(id, created, model, choices, total(usages)))


def total(usages: Sequence[Usage]) -> UsageBody:
    """Usage of all choices together. They share a prompt, which counts once, as in OpenAI's API."""
    prompt = usages[0].prompt if usages else 0
    output = sum(usage.completion for usage in usages)
    return UsageBody(prompt, output, prompt + output)
