"""A drafter played by hand, and a stream that it drafts for."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from edge.connection import Connection
from edge.drafters.base import Drafter, Proposal
from edge.events import Event
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Sampling
from edge.runtime import Generate, Runtime
from tests.edge.peer import Play, playing


class SteppedDrafter:
    """Proposes what the test says, when it says; keeps what it was told. It is called from the worker thread."""

    name = "stepped"
    fingerprint = ""
    vocabulary: Vocabulary | None = None

    def __init__(self) -> None:
        self.output: list[int] = []
        self.asked = threading.Semaphore(0)
        """Released once for each proposal that is wanted."""
        self.answers: queue.Queue[int | Exception | None] = queue.Queue(maxsize=64)
        self.closed = threading.Event()
        self.lengths: list[int] = []
        """Of the output at each proposal."""

    def begin(
        self, prompt: Sequence[int], sampling: Sampling, *, committed: Sequence[int] = (), coupled: bool = True
    ) -> SteppedDrafter:
        self.output = list(committed)
        return self

    def propose(self) -> Proposal | None:
        self.lengths.append(len(self.output))
        self.asked.release()
        answer = self.answers.get(timeout=20)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return None
        self.output.append(answer)
        return Proposal(answer, 0.5)

    def rollback(self, length: int) -> None:
        assert length <= len(self.output), "a rollback never goes forward"
        del self.output[length:]

    def feed(self, tokens: Sequence[int]) -> None:
        self.output += tokens

    def close(self) -> None:
        self.closed.set()

    async def asks(self) -> None:
        """Until the worker thread is inside `propose`."""
        assert await asyncio.to_thread(self.asked.acquire, timeout=20)


@asynccontextmanager
async def running(play: Play, drafter: Drafter, request: Generate) -> AsyncIterator[AsyncIterator[Event]]:
    async with (
        playing(play) as url,
        Connection(url, key="k") as connection,
        Runtime(connection, drafter, draw_seed=lambda: 7) as runtime,
        aclosing(runtime.generate(request)) as events,
    ):
        yield events
