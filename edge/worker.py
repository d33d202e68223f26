"""The one thread in which a drafter works, and what a stream's continuation does there.

The event loop and the thread share nothing but these calls: what a commit changed goes in with the next visit,
proposals come out. A visit that is under way can't be called off, so its caller checks afterwards whether the context
still holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from edge.drafters.base import Continuation, Drafter, Proposal
from edge.protocol.frames import Sampling

log = logging.getLogger("paceline.edge.worker")

T = TypeVar("T")


class Worker:
    """Calls run one after the other, in the order in which they were made: streams take turns."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="drafter")

    async def run(self, call: Callable[[], T]) -> T:
        """If the caller is cancelled, a call that has begun runs on."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def submit(self, call: Callable[[], None]) -> None:
        """Not waited for."""
        try:
            self._pool.submit(call).add_done_callback(_report)
        except RuntimeError:  # closed: nothing runs in the thread any more
            call()

    async def close(self) -> None:
        """Waits for the calls made so far."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)


def _report(future: Future[None]) -> None:
    error = future.exception()
    if error is not None:
        log.error("the drafter failed while it was being closed", exc_info=error)


@dataclass(frozen=True, slots=True)
class Mend:
    """What the drafter's cache has to be told: keep the first `keep` output tokens, then append `feed`."""

    keep: int
    feed: tuple[int, ...]


class Desk:
    """One stream's place in the worker thread. All methods run there."""

    def __init__(self, drafter: Drafter, clock: Callable[[], float]) -> None:
        self._drafter = drafter
        self._clock = clock
        self._continuation: Continuation | None = None
        self._closed = False

    def begin(self, prompt: Sequence[int], sampling: Sampling, committed: Sequence[int], coupled: bool) -> None:
        if not self._closed:
            self._continuation = self._drafter.begin(prompt, sampling, committed=committed, coupled=coupled)

    def visit(self, mend: Mend | None, count: int) -> tuple[list[Proposal], float]:
        """Mend the cache, then propose up to `count` tokens, fewer if out of ideas; and the seconds that each took."""
        continuation = self._continuation
        if continuation is None:
            return [], 0.0
        began = self._clock()
        if mend is not None:
            continuation.rollback(mend.keep)
            continuation.feed(mend.feed)
        proposals: list[Proposal] = []
        while len(proposals) < count and (proposal := continuation.propose()) is not None:
            proposals.append(proposal)
        return proposals, (self._clock() - began) / max(1, len(proposals))

    def close(self) -> None:
        self._closed = True
        if self._continuation is not None:
            self._continuation.close()
            self._continuation = None
