"""A device without a network whose drafts take time: one stream of an engine in this process, at a drafter's own pace.

`Replay` is a drafter whose tokens are known before. So many devices can draft at a model's speed without its
arithmetic: eight models on one core would measure the core.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from app.engine.base import Commit, Refused, Widened
from app.engine.generation import Generation
from edge.drafters.base import Continuation, Proposal
from edge.protocol import frames
from edge.protocol.drafting import DraftingSession

AHEAD = 16
"""Most tokens that a device drafts past the head."""


class Arrival(NamedTuple):
    at: float
    """Seconds."""
    tokens: int


@dataclass(slots=True)
class Replay:
    """What a drafter said for each output position, whatever stands before it now: behind a wrong draft none counts."""

    drafts: Sequence[int]
    _length: int = 0

    def propose(self) -> Proposal | None:
        if self._length >= len(self.drafts):
            return None
        self._length += 1
        return Proposal(self.drafts[self._length - 1], 1.0)

    def rollback(self, length: int) -> None:
        self._length = min(self._length, length)

    def feed(self, tokens: Sequence[int]) -> None:
        self._length += len(tokens)

    def close(self) -> None:
        pass


@dataclass(slots=True)
class PacedDevice:
    """Drafts a token every `draft_s` seconds while there is room in its window; with 0, all that there is room for."""

    drafter: Continuation | None
    """None: it doesn't draft."""
    draft_s: float = 0.0
    whole_calls: bool = False
    """Whether a call that is under way when its context changes takes its time all the same, as a model's does."""
    session: DraftingSession = field(default_factory=lambda: DraftingSession(0, limit=AHEAD))
    _mended: int = 0
    """How often the drafter's context has changed."""

    async def run(self, generation: Generation) -> list[Arrival]:
        """To the end; tells when tokens came."""
        self.session.widen(frames.Window(0, generation.window))
        arrivals: list[Arrival] = []
        pacing = asyncio.create_task(self._pace(generation)) if self.drafter and self.draft_s else None
        try:
            self._draft_at_once(generation)
            async with aclosing(cast("Any", generation.events())) as events:
                async for event in events:
                    if isinstance(event, Commit):
                        arrivals.append(Arrival(time.perf_counter(), len(event.tokens)))
                        self._commit(event)
                    elif isinstance(event, Refused):
                        self.session.refused(frames.Error(0, "draft_refused", epoch=event.lowest_epoch))
                    elif isinstance(event, Widened):
                        self.session.widen(frames.Window(0, event.ahead))
                    self._draft_at_once(generation)
        finally:
            if pacing is not None:
                pacing.cancel()
            found = await asyncio.gather(*([pacing] if pacing else []), return_exceptions=True)
        for fault in found:
            if isinstance(fault, Exception):
                raise fault
        return arrivals

    def _commit(self, event: Commit) -> None:
        found = self.session.commit(frames.Commit(0, event.start, event.tokens, event.drafted))
        if found.feed and self.drafter is not None:
            self.drafter.rollback(found.keep)
            self.drafter.feed(found.feed)
            self._mended += 1

    def _draft_at_once(self, generation: Generation) -> None:
        if not self.draft_s:
            while self._draft():
                pass
            self._send(generation)

    async def _pace(self, generation: Generation) -> None:
        due, mended = time.perf_counter(), self._mended
        while True:
            due = max(due + self.draft_s, time.perf_counter() - self.draft_s)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if self.whole_calls and mended != self._mended:
                mended = self._mended
            else:
                self._draft()
            self._send(generation)

    def _draft(self) -> bool:
        """Draft a token, if there is room and an idea."""
        if self.drafter is None or not self.session.wants_draft:
            return False
        proposal = self.drafter.propose()
        if proposal is not None:
            self.session.draft(proposal.token)
        return proposal is not None

    def _send(self, generation: Generation) -> None:
        while (block := self.session.next_block()) is not None:
            generation.offer(block.epoch, block.start, block.tokens)
