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
from functools import partial
from typing import TypeVar

from edge.drafters.base import Continuation, Drafter, Proposal
from edge.protocol.frames import Sampling

log = logging.getLogger("paceline.edge.worker")

T = TypeVar("T")


class Worker:
    """Calls run one after the other, in the order in which they were made: streams take turns."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="drafter")
        self._made = 0
        self._begun = 0

    @property
    def wanted(self) -> bool:
        """Whether a call waits behind the one that runs. For that one to ask, in the worker thread."""
        return self._made > self._begun

    async def run(self, call: Callable[[], T]) -> T:
        """If the caller is cancelled, a call that has begun runs on."""
        self._made += 1
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(self._begin, call))

    def submit(self, call: Callable[[], None]) -> None:
        """Not waited for."""
        self._made += 1
        try:
            self._pool.submit(partial(self._begin, call)).add_done_callback(_report)
        except RuntimeError:  # closed: nothing runs in the thread any more
            call()

    def _begin(self, call: Callable[[], T]) -> T:
        self._begun += 1
        return call()

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

    def visit(
        self,
        mend: Mend | None,
        count: int,
        turn: int,
        go_on: Callable[[], bool],
        deliver: Callable[[list[Proposal], float], None],
        enough: Callable[[float], bool] = lambda confidence: False,
    ) -> bool:
        """Mend the cache, then propose up to `count` tokens. True: the drafter is out of ideas.

        Each `turn` of them is delivered as it comes, with the seconds that each took; drafting doesn't wait for what is
        made of them. Another turn begins while `go_on()`; the first always does, so that several streams all get on.
        The visit ends behind a proposal of whose confidence `enough` says that nothing behind it is worth drafting.
        """
        continuation = self._continuation
        if continuation is None:
            return True
        began = self._clock()
        if mend is not None:
            continuation.rollback(mend.keep)
            continuation.feed(mend.feed)
        over = False
        while True:
            proposals: list[Proposal] = []
            while len(proposals) < min(turn, count) and (proposal := continuation.propose()) is not None:
                proposals.append(proposal)
                if over := enough(proposal.confidence):
                    break
            count -= len(proposals)
            now = self._clock()
            if proposals:
                deliver(proposals, (now - began) / len(proposals))
            if len(proposals) < turn and count and not over:
                return True
            if over or not count or not go_on():
                return False
            began = now

    def close(self) -> None:
        self._closed = True
        if self._continuation is not None:
            self._continuation.close()
            self._continuation = None
