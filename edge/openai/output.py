"""One choice's output, token by token: text, tool calls and logprobs that can be shown, and why it ended. Pure.

Nothing is shown before it is sure: no part of a character, nothing that may belong to a stop string, no token's
logprobs before all of its text. So a part may hold what several tokens brought, or nothing of its own token's yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from edge.openai.job import Job
from edge.openai.text import OutputText
from edge.openai.tool_calls import CallDelta, Parsed, ToolCallParser
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Reason, TokenLogprob

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Part:
    """What has come to be shown. Falsy when it is nothing."""

    text: str = ""
    calls: tuple[CallDelta, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.calls or self.logprobs)


class ChoiceOutput:
    """Feed it the tokens of one job's generation; `finish` when it is over."""

    def __init__(self, job: Job, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._text = OutputText(job.stop)
        self._min_tokens = job.min_tokens
        self._parser = ToolCallParser(job.tools) if job.tools else None
        self._length = 0
        self._bytes = 0
        """Of all tokens, those behind a stop string too."""
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()
        """Logprobs not shown yet, each with the offset in bytes at which its token's text ends."""

    def push(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob] = ()) -> Part:
        """The output has grown by these tokens. `logprobs`: one for each, or none at all."""
        for i, token in enumerate(tokens):
            piece = self._vocabulary.piece(token)
            self._length += 1
            self._bytes += len(piece)
            self._text.push(piece, stoppable=self._length >= self._min_tokens)
            # The token that ends an answer is none of its content.
            if logprobs and token not in self._vocabulary.ends:
                self._waiting.append((self._bytes, logprobs[i]))
        text = self._text.take()
        parsed = self._parser.push(text) if self._parser else Parsed(text)
        return Part(parsed.text, parsed.calls, self._shown(self._text.taken_bytes))

    def finish(self, kept_bytes: int | None) -> Part:
        """The rest: what was withheld, up to the cut that the engine made for a stop string."""
        if kept_bytes is not None:
            self._text.cut(kept_bytes)
        text = self._text.take(final=True)
        parsed = Parsed(text)
        if self._parser:
            first, last = self._parser.push(text), self._parser.finish()
            parsed = Parsed(first.text + last.text, (*first.calls, *last.calls))
        logprobs = self._shown(self._text.taken_bytes if kept_bytes is None else kept_bytes)
        return Part(parsed.text, parsed.calls, logprobs)

    def reason(self, reason: Reason) -> FinishReason:
        """Why the choice ended, in OpenAI's words; `reason` is the engine's, `stop` or `length`."""
        if reason == "length":
            return "length"
        return "tool_calls" if self._parser and self._parser.count else "stop"

    def _shown(self, upto: int) -> tuple[TokenLogprob, ...]:
        shown = []
        while self._waiting and self._waiting[0][0] <= upto:
            shown.append(self._waiting.popleft()[1])
        return tuple(shown)


@dataclass(slots=True)
class Call:
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Collected:
    """A whole choice."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    reason: FinishReason = "stop"

    def add(self, part: Part) -> None:
        self.text += part.text
        self.logprobs += part.logprobs
        for delta in part.calls:
            if delta.name is not None:
                self.calls.append(Call(delta.name))
            self.calls[delta.index].arguments += delta.arguments
