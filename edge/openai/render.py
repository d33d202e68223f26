"""Bodies and chunks of /v1/chat/completions, and what the renderers of all endpoints have in common. Pure.

A `Renderer` is fed the tokens of all choices. A streaming one gives server-sent events; the other collects and gives
the whole body. Gateway and device drive both in the same way:

    begin()   push(index, tokens, logprobs) …   finish(index, reason, kept_bytes) for each choice   end(usages)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from edge.openai.job import Job
from edge.openai.output import ChoiceOutput, Collected, Part
from edge.openai.schemas import ChatRequest
from edge.openai.tool_calls import CallDelta
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Reason, TokenLogprob, Usage

DONE: Final = b"data: [DONE]\n\n"
encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Identity:
    """What an answer is called."""

    id: str
    created: int
    """Seconds since 1970."""
    model: str


class Renderer(Protocol):
    """Turns the output of one request's generations into bytes to send; b"" where there is nothing to send."""

    def begin(self) -> bytes:
        """Before the first token."""
        ...

    def push(self, index: int, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]) -> bytes:
        """Choice `index` (the job's place in its list) has grown."""
        ...

    def finish(self, index: int, reason: Reason, kept_bytes: int | None) -> bytes:
        """Choice `index` is over. `reason`: `stop` or `length`; `kept_bytes`: where a stop string cut its text."""
        ...

    def end(self, usages: Sequence[Usage]) -> bytes:
        """All choices are over; `usages` in their order. The rest of the stream, or the whole body."""
        ...

    def failed(self, error: Mapping[str, Any]) -> bytes:
        """The stream can't go on. `error`: as in OpenAI's body, {"error": {…}}."""
        ...


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


class FunctionDelta(Struct, frozen=True):
    arguments: str
    name: str | UnsetType = UNSET


class ToolCallDelta(Struct, frozen=True):
    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class Delta(Struct, frozen=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    index: int
    delta: Delta
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class CompletionDetails(Struct, frozen=True):
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    reasoning_tokens: int = 0
    audio_tokens: int = 0


class UsageBody(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionDetails
    """Of drafts, whoever sent them: those that became output, and the others."""


class Chunk(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageBody | UnsetType | None = UNSET
    object: str = "chat.completion.chunk"


class FunctionCall(Struct, frozen=True):
    name: str
    arguments: str


class ToolCallBody(Struct, frozen=True):
    id: str
    function: FunctionCall
    type: str = "function"


class AnswerMessage(Struct, frozen=True):
    content: str | None
    tool_calls: list[ToolCallBody] | UnsetType = UNSET
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


class ChatStream:
    """A streamed answer."""

    def __init__(
        self, identity: Identity, jobs: Sequence[Job], vocabulary: Vocabulary, *, include_usage: bool = False
    ) -> None:
        self._identity = identity
        self._vocabulary = vocabulary
        self._outputs = [ChoiceOutput(job, vocabulary) for job in jobs]
        self._with_logprobs = [job.logprobs is not None for job in jobs]
        self._include_usage = include_usage

    def begin(self) -> bytes:
        return b"".join(
            self._event(ChunkChoice(index, Delta(role="assistant", content=""))) for index in range(len(self._outputs))
        )

    def push(self, index: int, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]) -> bytes:
        return self._part(index, self._outputs[index].push(tokens, logprobs))

    def finish(self, index: int, reason: Reason, kept_bytes: int | None) -> bytes:
        output = self._outputs[index]
        last = self._part(index, output.finish(kept_bytes))
        return last + self._event(ChunkChoice(index, Delta(), finish_reason=output.reason(reason)))

    def end(self, usages: Sequence[Usage]) -> bytes:
        if not self._include_usage:
            return DONE
        name = self._identity
        return sse(encode(Chunk(name.id, name.created, name.model, [], total(usages)))) + DONE

    def failed(self, error: Mapping[str, Any]) -> bytes:
        return sse(encode(error))

    def _part(self, index: int, part: Part) -> bytes:
        events = b""
        if part.text or part.logprobs:
            logprobs = named_logprobs(part.logprobs, self._vocabulary) if self._with_logprobs[index] else None
            events += self._event(ChunkChoice(index, Delta(content=part.text), logprobs))
        if part.calls:
            calls = [self._call(index, call) for call in part.calls]
            events += self._event(ChunkChoice(index, Delta(tool_calls=calls)))
        return events

    def _call(self, index: int, call: CallDelta) -> ToolCallDelta:
        if call.name is None:
            return ToolCallDelta(call.index, FunctionDelta(call.arguments))
        function = FunctionDelta(call.arguments, call.name)
        return ToolCallDelta(call.index, function, call_id(self._identity.id, index, call.index), "function")

    def _event(self, choice: ChunkChoice) -> bytes:
        name = self._identity
        # OpenAI's API says usage: null in the other chunks when usage was asked for, and leaves it out otherwise.
        usage = None if self._include_usage else UNSET
        return sse(encode(Chunk(name.id, name.created, name.model, [choice], usage)))


class Collecting:
    """What a whole answer needs of its choices, for a renderer whose `end` makes the body of them."""

    def __init__(self, jobs: Sequence[Job], vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._outputs = [ChoiceOutput(job, vocabulary) for job in jobs]
        self.choices = [Collected() for _ in jobs]

    def begin(self) -> bytes:
        return b""

    def push(self, index: int, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]) -> bytes:
        self.choices[index].add(self._outputs[index].push(tokens, logprobs))
        return b""

    def finish(self, index: int, reason: Reason, kept_bytes: int | None) -> bytes:
        output, choice = self._outputs[index], self.choices[index]
        choice.add(output.finish(kept_bytes))
        choice.reason = output.reason(reason)
        return b""

    def failed(self, error: Mapping[str, Any]) -> bytes:
        return encode(error)


class ChatBody(Collecting):
    """An answer in one piece."""

    def __init__(self, identity: Identity, jobs: Sequence[Job], vocabulary: Vocabulary) -> None:
        super().__init__(jobs, vocabulary)
        self._identity = identity
        self._with_logprobs = [job.logprobs is not None for job in jobs]

    def end(self, usages: Sequence[Usage]) -> bytes:
        name = self._identity
        choices = [self._choice(index, choice) for index, choice in enumerate(self.choices)]
        return encode(Completion(name.id, name.created, name.model, choices, total(usages)))

    def _choice(self, index: int, choice: Collected) -> Choice:
        calls = [
            ToolCallBody(call_id(self._identity.id, index, at), FunctionCall(call.name, call.arguments))
            for at, call in enumerate(choice.calls)
        ]
        message = AnswerMessage(choice.text or None if calls else choice.text, calls or UNSET)
        logprobs = named_logprobs(choice.logprobs, self.vocabulary) if self._with_logprobs[index] else None
        return Choice(index, message, choice.reason, logprobs)


def chat_renderer(
    chat: ChatRequest,
    jobs: Sequence[Job],
    vocabulary: Vocabulary,
    *,
    id: str,  # noqa: A002
    created: int,
) -> Renderer:
    """The renderer that a request asks for: streaming or not."""
    identity = Identity(id, created, chat.model)
    if not chat.stream:
        return ChatBody(identity, jobs, vocabulary)
    usage = chat.stream_options is not None and chat.stream_options.include_usage
    return ChatStream(identity, jobs, vocabulary, include_usage=usage)


def call_id(answer: str, choice: int, call: int) -> str:
    """The id by which a client says whose result it sends. A function of the answer's, so that both forms agree."""
    return f"call_{answer.rpartition('-')[2].rpartition('_')[2]}{choice:x}{call:02x}"


def named_logprobs(entries: Sequence[TokenLogprob], vocabulary: Vocabulary) -> Logprobs:
    return Logprobs(
        [
            ContentLogprob(
                *_named(vocabulary, entry.token, entry.logprob),
                [TopLogprob(*_named(vocabulary, token, logprob)) for token, logprob in entry.top],
            )
            for entry in entries
        ]
    )


def _named(vocabulary: Vocabulary, token: int, logprob: float) -> tuple[str, float, list[int]]:
    piece = vocabulary.piece(token)
    # OpenAI's clients know of no -Infinity in JSON; -9999 is what its API sends for "next to never".
    return piece.decode(errors="replace"), max(-9999.0, logprob), list(piece)


def sse(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def total(usages: Sequence[Usage], *, prompts: int = 1) -> UsageBody:
    """Usage of all choices together. Choices of one prompt share it: it counts once, as in OpenAI's API."""
    choices = max(1, len(usages) // prompts)
    prompt = sum(usage.prompt for usage in usages[::choices])
    output = sum(usage.completion for usage in usages)
    accepted = sum(usage.accepted + usage.matched for usage in usages)
    drafted = sum(usage.drafted for usage in usages)
    return UsageBody(prompt, output, prompt + output, CompletionDetails(accepted, max(0, drafted - accepted)))
