"""One stream on one socket: the task that reads its generation from a cursor and sends frames.

There is no queue. While the socket is slow the task waits in `send`, the ledger grows, and the next commit holds all
that came meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from app.api.streams import HeldStream
from app.engine.base import Commit, Event, Refused, Widened
from edge.openai.text import OutputText
from edge.openai.vocabulary import Vocabulary
from edge.protocol import frames

Send = Callable[[frames.CloudFrame], Awaitable[None]]


class CommitText:
    """The text that a stream's commits carry, for edges without a tokenizer."""

    def __init__(self, vocabulary: Vocabulary, stop: tuple[str, ...], min_tokens: int) -> None:
        self._vocabulary = vocabulary
        self._text = OutputText(stop)
        self._min_tokens = min_tokens
        self._length = 0

    def push(self, tokens: tuple[int, ...] | list[int]) -> tuple[str, tuple[int, ...]]:
        """The text that can be shown since these tokens, and how many characters of it each of them gave."""
        parts = []
        for token in tokens:
            self._length += 1
            self._text.push(self._vocabulary.piece(token), stoppable=self._length >= self._min_tokens)
            parts.append(self._text.take())
        return "".join(parts), tuple(map(len, parts))

    def rest(self, kept_bytes: int | None) -> str:
        if kept_bytes is not None:
            self._text.cut(kept_bytes)
        return self._text.take(final=True)


class Attachment:
    """`id` is the stream's on this socket. In the end `ended` or `fenced` is called, unless the socket is lost."""

    def __init__(
        self,
        id: int,  # noqa: A002
        stream: HeldStream,
        start: int,
        *,
        vocabulary: Vocabulary,
        send: Send,
        ended: Callable[[Attachment], None],
        fenced: Callable[[Attachment], None],
    ) -> None:
        self.id = id
        self.stream = stream
        self.task: asyncio.Task[None] | None = None
        self._start = start
        self._send = send
        self._ended = ended
        self._fenced = fenced
        self._text: CommitText | None = None
        if stream.text:
            request = stream.generation.request
            self._text = CommitText(vocabulary, request.stop, request.min_tokens)
            self._text.push(stream.generation.ledger.tokens[:start])  # given out on an earlier socket

    def begin(self) -> None:
        """Start sending. The holder keeps `task` until it is done."""
        self.task = asyncio.create_task(self._run())

    def fence(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self._fenced(self)

    async def _run(self) -> None:
        generation = self.stream.generation
        async for event in generation.events(self._start):
            await self._send(self._frame(event))
            if isinstance(event, Commit):
                self.stream.pace.commit(len(event.tokens), time.monotonic())
        self.stream.pace.finish()
        await self._finish()
        self._ended(self)

    def _frame(self, event: Event) -> frames.CloudFrame:
        match event:
            case Commit():
                text, cuts = self._text.push(event.tokens) if self._text else ("", ())
                return frames.Commit(
                    self.id,
                    event.start,
                    event.tokens,
                    event.drafted,
                    round(event.step_s * 1e6),
                    round(event.queue_s * 1e6),
                    text,
                    event.logprobs,
                    cuts,
                )
            case Refused():
                message = "the draft left a hole"
                return frames.Error(self.id, "draft_refused", message, epoch=event.lowest_epoch)
            case Widened():
                return frames.Window(self.id, event.ahead)

    async def _finish(self) -> None:
        finished = self.stream.generation.finished
        assert finished is not None, "events() ends once the generation has finished"  # noqa: S101
        if finished.reason == "error":
            code = finished.error or "engine_failed"
            await self._send(frames.Error(self.id, code, "the engine failed at this stream", final=True))
            return
        rest = self._text.rest(finished.kept_bytes) if self._text else ""
        if rest:  # withheld until now: it might have begun a stop string
            await self._send(frames.Commit(self.id, finished.length, (), text=rest))
        await self._send(frames.Finish(self.id, finished.length, finished.reason, finished.kept_bytes, finished.usage))
