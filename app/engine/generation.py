"""One stream's output as the gateway sees it: a ledger that grows, read by any number of cursors.

It lives on the event loop. The engine's worker publishes to it once per step (loop.py); nothing here locks, waits for
the worker or queues: a reader that is slow, or comes back after a lost connection, finds in the ledger what it has
missed.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.engine.base import Commit, Event, Finished, Refused, Request, Widened
from edge.protocol.frames import TokenLogprob, Usage
from edge.protocol.ledger import Ledger

PARK_AHEAD = 32
"""How far a stream that nobody reads runs on past what was delivered, tokens."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step changed in one stream."""

    tokens: tuple[int, ...] = ()
    drafted: int = 0
    """How many of `tokens`, from the first on, were accepted drafts."""
    step_s: float = 0.0
    queue_s: float = 0.0
    logprobs: tuple[TokenLogprob, ...] = ()
    usage: Usage | None = None
    refused: int | None = None
    """Lowest epoch that is taken again, if a draft was refused."""
    finished: Finished | None = None


class Worker(Protocol):
    """Where a generation sends what its reader wants. None of these blocks or raises."""

    def offer(self, generation: Generation, epoch: int, start: int, tokens: Sequence[int]) -> None: ...

    def cancel(self, generation: Generation) -> None: ...

    def park(self, generation: Generation, at: int | None) -> None:
        """Stop at this length (and never hold) until told otherwise; None: run on."""
        ...


class Generation:
    """A handle on one stream. All methods are called on the event loop."""

    def __init__(self, request: Request, worker: Worker, *, window: int) -> None:
        self.request = request
        self.ledger = Ledger(request.committed)
        self.finished: Finished | None = None
        self.window = window
        """How far ahead drafting is worth it now, in tokens past the head; at least 1."""
        self.delivered = len(request.committed)
        """Length of the output that some reader has been given."""
        self.on_checked: Callable[[int, int], None] | None = None
        """Told of each step that checked drafts: how many, and how many of them, from the first on, were accepted."""
        self._worker = worker
        self._usage = Usage(prompt=len(request.prompt), completion=len(request.committed))
        self._base = len(request.committed)
        self._ends = array("l")
        """For each step: where its tokens end; and beside it, how many of them were drafts, how long it took, and how
        long the drafts had waited. Arrays: there are thousands of streams, and lists of floats are five times as large.
        """
        self._drafted = array("l")
        self._step_s = array("d")
        self._queue_s = array("d")
        self._logprobs: list[TokenLogprob] = []
        self._highest_epoch = -1
        self._refusals = 0
        self._refused_below = 0
        self._windows = 0
        self._readers: dict[asyncio.Future[None], None] = {}
        self._relay: tuple[Callable[[Progress], None], Callable[[int], None]] | None = None

    @property
    def lowest_epoch(self) -> int:
        """The lowest epoch of which a draft is taken for sure, whatever was lost on the way."""
        return self._highest_epoch + 1

    def usage(self) -> Usage:
        return self._usage

    async def events(self, start: int = 0) -> AsyncGenerator[Event, None]:
        """All that happens from output position `start` on; ends when the stream has finished and all was given.

        A reader that falls behind gets one commit for all that piled up, and the last of several refusals or windows.
        """
        cursor, refusals, windows = start, self._refusals, self._windows
        while True:
            if refusals != self._refusals:
                refusals = self._refusals
                yield Refused(self._refused_below)
            if windows != self._windows:
                windows = self._windows
                yield Widened(self.window)
            if cursor < len(self.ledger):
                commit = self._commit(cursor)
                cursor += len(commit.tokens)
                self.delivered = max(self.delivered, cursor)
                yield commit
            elif self.finished is not None:
                return
            elif refusals == self._refusals and windows == self._windows:
                await self._change()

    def offer(self, epoch: int, start: int, tokens: Sequence[int]) -> None:
        """Hand in a draft. A stale, late or wrong one is dropped in silence; one that leaves a hole comes back as
        Refused.
        """
        self._highest_epoch = max(self._highest_epoch, epoch)
        if self.finished is None:
            self._worker.offer(self, epoch, start, tokens)

    def cancel(self) -> None:
        """End the stream within one step. Idempotent; `events` ends then."""
        if self.finished is None:
            self._worker.cancel(self)

    def detach(self) -> None:
        """Nobody reads: run on at most PARK_AHEAD tokens past what was delivered, then wait."""
        self.park(self.delivered + PARK_AHEAD)

    def attach(self) -> None:
        """Somebody reads again."""
        self.park(None)

    def park(self, at: int | None) -> None:
        """Stop at this length (and never hold) until told otherwise; None: run on."""
        self._worker.park(self, at)

    def relay(self, progress: Callable[[Progress], None], window: Callable[[int], None]) -> None:
        """Pass on what the engine gives, as it gives it: to a generation in another process (replica.py)."""
        self._relay = progress, window

    def apply(self, progress: Progress) -> None:
        """For the engine: take what a step gave, and wake the readers."""
        if self.finished is not None:
            return
        if progress.tokens:
            self.ledger.append(progress.tokens)
            self._ends.append(len(self.ledger))
            self._drafted.append(progress.drafted)
            self._step_s.append(progress.step_s)
            self._queue_s.append(progress.queue_s)
            self._logprobs.extend(progress.logprobs)
        if progress.usage is not None:
            checked = progress.usage.verified - self._usage.verified
            if checked and self.on_checked is not None:
                self.on_checked(checked, progress.drafted)
            self._usage = progress.usage
        if progress.refused is not None:
            self._refusals += 1
            self._refused_below = progress.refused
        self.finished = progress.finished
        self._wake()
        if self._relay is not None:
            self._relay[0](progress)

    def widen(self, ahead: int) -> None:
        """For the engine: another draft-ahead window."""
        if ahead != self.window:
            self.window = ahead
            self._windows += 1
            self._wake()
            if self._relay is not None:
                self._relay[1](ahead)

    def _commit(self, cursor: int) -> Commit:
        """All that the ledger holds from `cursor` on."""
        first = bisect_right(self._ends, cursor)
        begin = self._ends[first - 1] if first else self._base
        drafted, step_s = 0, self._step_s[-1] if first < len(self._ends) else 0.0
        for end, accepted in zip(self._ends[first:], self._drafted[first:], strict=True):
            drafted += max(0, accepted - max(0, cursor - begin))
            begin = end
        queue_s = max(self._queue_s[first:], default=0.0)
        logprobs = tuple(self._logprobs[max(0, cursor - self._base) :]) if self._logprobs else ()
        return Commit(cursor, tuple(self.ledger.tokens[cursor:]), drafted, step_s, queue_s, logprobs)

    async def _change(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._readers[future] = None
        try:
            await future
        finally:
            del self._readers[future]

    def _wake(self) -> None:
        for future in self._readers:
            if not future.done():
                future.set_result(None)
