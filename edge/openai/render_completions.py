"""Bodies and chunks of /v1/completions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from edge.openai.job import Job
from edge.openai.output import ChoiceOutput, Part
from edge.openai.render import DONE, Collecting, Identity, Renderer, UsageBody, encode, sse, total
from edge.openai.schemas import CompletionRequest
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Reason, TokenLogprob, Usage


class TextLogprobs(Struct, frozen=True):
    """The older shape: parallel lists, and rivals by their text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]
    """Where each token begins, in characters of the choice's text."""


class TextChoice(Struct, frozen=True):
    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None


class TextCompletion(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageBody | UnsetType | None = UNSET
    object: str = "text_completion"


class _Offsets:
    """Where a choice's tokens begin in its text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._bytes = bytearray()

    def logprobs(self, entries: Sequence[TokenLogprob]) -> TextLogprobs:
        named = TextLogprobs([], [], [], [])
        for entry in entries:
            piece = self._vocabulary.piece(entry.token)
            named.tokens.append(piece.decode(errors="replace"))
            named.token_logprobs.append(max(-9999.0, entry.logprob))
            named.top_logprobs.append(
                {self._vocabulary.piece(t).decode(errors="replace"): max(-9999.0, value) for t, value in entry.top}
            )
            named.text_offset.append(len(self._bytes.decode(errors="ignore")))
            self._bytes += piece
        return named


class CompletionStream:
    def __init__(
        self,
        identity: Identity,
        jobs: Sequence[Job],
        vocabulary: Vocabulary,
        *,
        echo: bool,
        include_usage: bool,
        prompts: int,
    ) -> None:
        """`prompts`: how many of them the jobs belong to."""
        self._identity = identity
        self._outputs = [ChoiceOutput(job, vocabulary) for job in jobs]
        self._offsets = [_Offsets(vocabulary) if job.logprobs is not None else None for job in jobs]
        self._echoes = [echoed(job, vocabulary) if echo else "" for job in jobs]
        self._include_usage = include_usage
        self._prompts = prompts

    def begin(self) -> bytes:
        return b"".join(self._event(TextChoice(i, echo)) for i, echo in enumerate(self._echoes) if echo)

    def push(self, index: int, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]) -> bytes:
        return self._part(index, self._outputs[index].push(tokens, logprobs))

    def finish(self, index: int, reason: Reason, kept_bytes: int | None) -> bytes:
        output = self._outputs[index]
        last = self._part(index, output.finish(kept_bytes))
        return last + self._event(TextChoice(index, "", finish_reason=output.reason(reason)))

    def end(self, usages: Sequence[Usage]) -> bytes:
        if not self._include_usage:
            return DONE
        name, usage = self._identity, total(usages, prompts=self._prompts)
        return sse(encode(TextCompletion(name.id, name.created, name.model, [], usage))) + DONE

    def failed(self, error: Mapping[str, Any]) -> bytes:
        return sse(encode(error))

    def _part(self, index: int, part: Part) -> bytes:
        if not part:
            return b""
        offsets = self._offsets[index]
        logprobs = offsets.logprobs(part.logprobs) if offsets is not None else None
        return self._event(TextChoice(index, part.text, logprobs))

    def _event(self, choice: TextChoice) -> bytes:
        name, usage = self._identity, None if self._include_usage else UNSET
        return sse(encode(TextCompletion(name.id, name.created, name.model, [choice], usage)))


class CompletionBody(Collecting):
    def __init__(
        self, identity: Identity, jobs: Sequence[Job], vocabulary: Vocabulary, *, echo: bool, prompts: int
    ) -> None:
        super().__init__(jobs, vocabulary)
        self._identity = identity
        self._with_logprobs = [job.logprobs is not None for job in jobs]
        self._echoes = [echoed(job, vocabulary) if echo else "" for job in jobs]
        self._prompts = prompts

    def end(self, usages: Sequence[Usage]) -> bytes:
        name = self._identity
        choices = [
            TextChoice(
                index,
                self._echoes[index] + choice.text,
                _Offsets(self.vocabulary).logprobs(choice.logprobs) if self._with_logprobs[index] else None,
                choice.reason,
            )
            for index, choice in enumerate(self.choices)
        ]
        return encode(TextCompletion(name.id, name.created, name.model, choices, total(usages, prompts=self._prompts)))


def completion_renderer(
    request: CompletionRequest,
    jobs: Sequence[Job],
    vocabulary: Vocabulary,
    *,
    id: str,  # noqa: A002
    created: int,
) -> Renderer:
    """The renderer that a request asks for: streaming or not."""
    identity, echo = Identity(id, created, request.model), bool(request.echo)
    prompts = len(jobs) // (request.n or 1)
    if not request.stream:
        return CompletionBody(identity, jobs, vocabulary, echo=echo, prompts=prompts)
    usage = request.stream_options is not None and request.stream_options.include_usage
    return CompletionStream(identity, jobs, vocabulary, echo=echo, include_usage=usage, prompts=prompts)


def echoed(job: Job, vocabulary: Vocabulary) -> str:
    return b"".join(vocabulary.piece(token) for token in job.prompt).decode(errors="replace")
