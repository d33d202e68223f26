"""One stream being run: the drafter never waits for the cloud, nor the cloud for the drafter.

Two things happen at once. Commits arrive on the event loop and are applied as they come; and the drafter, in its worker
thread, proposes token after token behind what was known when it began the last one. They meet here:

- A commit that agrees with the tail leaves the drafter alone: the next position to draft is where it was.
- A commit that doesn't (a correction, or the drafter was overtaken) raises `_context`, so that a proposal in the making
  is thrown away when it comes out, and lowers `_valid`, the length of output up to which the drafter's cache is right.
  The next visit to the worker mends the cache from there: however many commits came meanwhile, it is one rollback and
  one feed, of what the ledger holds by then.

Whoever reads the events slowly stops the drafting, not the stream: with `_UNREAD` events unread drafting pauses, and
commits merge into the last unread one. So memory is bounded by the output itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from edge.budget import Budget
from edge.confidence import Calibration, Tail
from edge.connection import Connection
from edge.drafters.base import Drafter, Proposal
from edge.errors import EdgeError
from edge.events import Committed, Drafted, Ended, Event, RolledBack
from edge.generate import Generate
from edge.meter import Meter
from edge.openai.vocabulary import Vocabulary
from edge.pacing import pace
from edge.protocol.drafting import DraftingSession, Reconciliation
from edge.protocol.frames import Commit, Finish, Open, Opened
from edge.protocol.ledger import Ledger
from edge.stream import Phase, Stream
from edge.transcript import Transcript, origins
from edge.worker import Desk, Mend, Worker

log = logging.getLogger("paceline.edge.run")

_UNREAD = 256
_VISIT = 8
"""Tokens that a stream drafts before another one's turn is looked at again, at most."""
_FIRST_EPOCH = 1
"""A fresh mailbox is at epoch 0 and names 1 as the lowest that is safe: then what was sent ahead of `opened` counts."""


class Run:
    """A stream with its drafter and its reader. Everything but the `Desk` runs on the event loop."""

    def __init__(
        self,
        request: Generate,
        connection: Connection,
        drafter: Drafter | None,
        *,
        vocabulary: Vocabulary | None,
        worker: Worker,
        clock: Callable[[], float],
        calibration: Calibration,
        budget: Budget | None = None,
    ) -> None:
        """`request.sampling.seed` is set. `budget`: what may be drafted at all; None: as much as helps.

        `calibration`: of such drafts as these; shared with the streams that draft alike.
        """
        self._request = request
        self._connection = connection
        self._worker = worker
        self._clock = clock
        self._budget = budget
        self._ends = vocabulary.ends if vocabulary is not None else frozenset()
        self._transcript = Transcript(vocabulary, request.stop, min_tokens=request.min_tokens)
        if vocabulary is not None:
            self._transcript.skip(request.committed)
        self._session = DraftingSession(0, epoch=_FIRST_EPOCH, ledger=Ledger(request.committed))
        self._stream = Stream(_open(request, text=vocabulary is None), self._session, self)
        self._meter = Meter(clock())
        self._prompt = request.prompt
        self._desk = None if drafter is None else Desk(drafter, clock)
        self._drafting: asyncio.Task[None] | None = None
        self._turn = 1
        self._tail = Tail(calibration)
        self._context = 0
        self._valid: int | None = None
        """None: the drafter's cache agrees with ledger and tail."""
        self._dry = False
        """It has said so itself: not because an end token was drafted."""
        self._exhausted = False
        """The drafter has nothing to propose in this context."""
        self._events: deque[Event] = deque()
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        """Something changed that lets the drafting go on."""
        self._unread = asyncio.Event()

    def start(self) -> None:
        """Raises what `Connection.open` raises."""
        self._repace()
        self._connection.open(self._stream)
        if self._desk is not None:
            self._drafting = asyncio.create_task(self._draft(self._desk))

    async def next_event(self) -> Event:
        """Raises what ended the stream, once all events before it have been read."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            self._unread.clear()
            await self._unread.wait()
        self._changed.set()
        return self._events.popleft()

    async def close(self) -> None:
        """Leave the stream, cancelling it if it still runs. Idempotent."""
        if self._stream.phase is not Phase.ENDED:
            self._stream.cancel()
            self._connection.wake(self._stream)
        self._context += 1  # a visit under way ends with the token that it is on
        if self._drafting is not None:
            self._drafting.cancel()
            await asyncio.gather(self._drafting, return_exceptions=True)
        if self._desk is not None:
            self._worker.submit(self._desk.close)

    # The drafter's side

    async def _draft(self, desk: Desk) -> None:
        try:
            while not self._prompt:  # templated by the cloud: it comes with `opened`
                await self._change()
            committed, self._valid = tuple(self._session.ledger.tokens), None
            request = self._request
            await self._worker.run(partial(desk.begin, self._prompt, request.sampling, committed, request.coupled))
            while True:
                while (count := self._affordable()) == 0:
                    await self._change_or_budget()
                await self._visit(desk, count)
        except Exception:  # drafts are hints: the stream goes on without
            log.exception("the drafter failed; the stream goes on without drafts")
            self._meter.drafter_failed = True
            self._exhausted = self._dry = True
            self._flush()
            self._check_starved()

    async def _visit(self, desk: Desk, count: int) -> None:
        """Let the drafter propose up to `count` tokens. They come to `_proposed` one by one, meanwhile."""
        context, mend = self._context, self._take_mend()
        loop = asyncio.get_running_loop()

        def go_on() -> bool:  # asked in the worker thread
            current = self._context == context and self._session.finish is None
            return current and not self._exhausted and not self._worker.wanted

        def deliver(proposals: list[Proposal], seconds: float) -> None:
            loop.call_soon_threadsafe(self._proposed, context, proposals, seconds)

        survival = self._tail.survival

        def enough(confidence: float) -> bool:  # in the worker thread: the event loop hears of the proposal later
            nonlocal survival
            survival *= self._tail.calibration.chance(confidence)
            return not self._promising(survival)

        dry = await self._worker.run(partial(desk.visit, mend, count, self._turn, go_on, deliver, enough))
        if dry and context == self._context:
            self._exhausted = self._dry = True
            self._flush()
            self._check_starved()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _change_or_budget(self) -> None:
        """There is nothing to draft, or it can't be afforded yet."""
        if self._budget is None or not self._room():
            await self._change()
            return
        self._flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._budget.wait_s()):
                await self._change()

    def _affordable(self) -> int:
        """How many tokens to propose now."""
        room = self._room()
        return room if self._budget is None else min(room, self._budget.room())

    def _room(self) -> int:
        """How many tokens are worth proposing now."""
        session = self._session
        if self._exhausted or session.finish is not None or len(self._events) >= _UNREAD:
            return 0
        if not self._promising(self._tail.survival):
            return 0
        room = session.ahead - len(session.tail)
        if self._request.max_tokens is not None:
            room = min(room, self._request.max_tokens - session.end)
        return max(0, min(room, max(_VISIT, self._turn)))

    def _promising(self, survival: float) -> bool:
        """Whether a token is worth drafting behind a tail that survives with this chance."""
        if self._request.policy == "sync" or survival == 1:
            return True
        return survival * self._meter.acceptance_rate >= self._request.least_survival

    def _take_mend(self) -> Mend | None:
        keep, self._valid = self._valid, None
        return None if keep is None else Mend(keep, tuple(self._session.ledger.tokens[keep:]))

    def _proposed(self, context: int, proposals: list[Proposal], seconds: float) -> None:
        self._meter.proposed(len(proposals), seconds)
        if self._budget is not None:
            self._budget.spend(len(proposals))
        if context != self._context or self._session.finish is not None or self._exhausted:
            self._meter.discarded += len(proposals)
            return
        start, tokens = self._session.end, list[int]()
        for proposal in proposals:
            self._session.draft(proposal.token)
            self._tail.draft(proposal.confidence)
            tokens.append(proposal.token)
            if proposal.token in self._ends:  # nothing can follow; if it is wrong, a commit says so
                self._exhausted = True
                break
        self._meter.discarded += len(proposals) - len(tokens)
        if tokens:
            confidences = tuple(proposal.confidence for proposal in proposals[: len(tokens)])
            self._emit(Drafted(self._clock(), start, tuple(tokens), confidences))
        self._flush()

    def _flush(self) -> None:
        """Send what there is to send: a partial block too, if drafting has stopped."""
        self._stream.flush = self._affordable() == 0
        self._connection.wake(self._stream)

    # The cloud's side (edge.stream.Listener)

    def opened(self, frame: Opened) -> None:
        if not self._prompt:
            self._prompt = frame.prompt
        self._repace()
        self._changed.set()

    def committed(self, frame: Commit, change: Reconciliation) -> None:
        new, now = change.committed, self._clock()
        if not new:  # sent twice, or the text that had been withheld
            self._transcript.add((), (), self._session.head, frame)
            return
        contradicted = bool(change.rolled_back)
        self._tail.commit(change.agreed, contradicted=contradicted, cleared=bool(change.feed))
        self._meter.committed(now, len(new), change.agreed, contradicted, frame.step_us / 1e6)
        if change.feed:
            self._context += 1
            self._exhausted = self._dry = self._meter.drafter_failed
            self._valid = change.keep if self._valid is None else min(self._valid, change.keep)
        start = self._session.head - len(new)
        kinds = origins(len(new), agreed=change.agreed, accepted=frame.drafted, contradicted=contradicted)
        tokens = self._transcript.add(new, kinds, start, frame)
        text = "".join(token.text for token in tokens)
        self._emit(Committed(now, start, tokens, change.agreed, text, frame.logprobs[-len(new) :]))
        if contradicted:
            self._emit(RolledBack(now, change.keep, change.rolled_back))
        self._repace()
        self._changed.set()
        self._check_starved()

    def widened(self) -> None:
        self._changed.set()

    def finished(self, frame: Finish, left: tuple[int, ...]) -> None:
        now = self._clock()
        if left:
            self._emit(RolledBack(now, self._session.head, left))
        stats, traffic = self._session.stats, self._stream.traffic
        figures = self._meter.figures(frame.usage, traffic)
        measures = self._meter.measures(stats, traffic, self._connection.rtt_s, self._stream.attachments)
        rest = self._transcript.end(frame.kept_bytes)
        self._emit(Ended(now, frame.reason, rest, frame.kept_bytes, frame.usage, figures, measures))
        self._changed.set()

    def _check_starved(self) -> None:
        """A draft-only stream waits for drafts: when none can come any more it would wait for ever."""
        session = self._session
        ended = session.finish is not None or (session.head and session.ledger.tokens[-1] in self._ends)
        if self._request.privacy != "draft_only" or not self._dry or session.tail or ended:
            return
        if session.head != self._request.max_tokens:  # there `finish` is under way
            self._stream.cancel()
            self._connection.wake(self._stream)
            self.failed(EdgeError("The drafter can't go on (its context is full, or it failed): the answer ends here."))

    def failed(self, error: Exception) -> None:
        self._failure = error
        self._exhausted = True
        self._unread.set()

    def _emit(self, event: Event) -> None:
        last = self._events[-1] if len(self._events) >= _UNREAD else None
        if isinstance(event, Committed) and isinstance(last, Committed):
            self._events[-1] = _joined(last, event)
        else:
            self._events.append(event)
        self._unread.set()

    def _repace(self) -> None:
        limits = self._connection.limits
        chosen = pace(
            self._meter.measured(self._connection.rtt_s),
            self._request.policy or "eager",
            bound=min(limits.held_tokens, limits.draft_tokens),
            draft_length=self._request.draft_length,
            least_survival=self._request.least_survival,
        )
        self._session.limit, self._session.block, self._turn = chosen.window, chosen.block, chosen.turn


def _open(request: Generate, *, text: bool) -> Open:
    return Open(
        0,
        request.model,
        prompt=() if request.privacy == "draft_only" else request.prompt,
        messages=request.messages,
        sampling=request.sampling,
        max_tokens=request.max_tokens,
        min_tokens=request.min_tokens,
        stop=request.stop,
        policy=request.policy,
        privacy=request.privacy,
        logprobs=request.logprobs,
        text=text,
    )


def _joined(first: Committed, second: Committed) -> Committed:
    """As if both had come in one commit. `agreed` counts from the front: the second's only if all the first's did."""
    whole = first.agreed == len(first.tokens)
    return Committed(
        second.at,
        first.start,
        first.tokens + second.tokens,
        first.agreed + (second.agreed if whole else 0),
        first.text + second.text,
        first.logprobs + second.logprobs,
    )
