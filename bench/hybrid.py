"""A device without a network: drives one stream of an engine in this process, with drafts of a given quality.

It keeps the product's own `DraftingSession`, so blocks, windows, epochs and rollbacks are as on the wire; only the wire
is missing. That makes thousands of streams affordable; the WebSocket has its own tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from app.engine.base import Commit, Engine, Refused, Request
from app.engine.generation import PARK_AHEAD, Generation
from edge.protocol import frames
from edge.protocol.drafting import DraftingSession
from edge.protocol.frames import Usage
from edge.protocol.ledger import Ledger

Kind = Literal["right", "mostly", "wrong", "none", "leaves"]
KINDS: tuple[Kind, ...] = ("right", "mostly", "wrong", "none", "leaves")
MOSTLY = 0.6


@dataclass(frozen=True, slots=True)
class Drafts:
    """What a device drafts, given what the target will say (`reference`)."""

    kind: Kind
    reference: tuple[int, ...]
    vocabulary: int
    seed: int = 0

    def token(self, position: int) -> int | None:
        """The draft for an output position; None: nothing to propose there."""
        if self.kind == "none" or position >= len(self.reference):
            return None
        target = self.reference[position]
        return target if self._right(position) else (target + 1) % self.vocabulary

    def _right(self, position: int) -> bool:
        if self.kind == "mostly":
            return bool(np.random.Philox(key=[self.seed, position]).random_raw() < MOSTLY * 2.0**64)
        return self.kind != "wrong"


@dataclass(slots=True)
class Device:
    """One stream's edge. `leave_at`: the output length at which it is gone until the stream has run into its limit."""

    drafts: Drafts
    window: int = 8
    block: int = 1
    leave_at: int | None = None
    usage: Usage = field(default_factory=Usage)
    """Of the last stream that ended."""

    async def run(self, engine: Engine, request: Request) -> list[int]:
        """Submit, draft to the end, and return the whole output, `request.committed` included."""
        generation = engine.submit(request)
        session = DraftingSession(0, window=self.window, block=self.block, ledger=Ledger(request.committed))
        leaves = self.leave_at is not None and self.leave_at > session.head
        try:
            self._draft(session, generation)
            if leaves and await self._follow(session, generation, self.leave_at):
                await _away(generation)
                opened = frames.Opened(0, "", 0, 0, 0, generation.lowest_epoch, len(generation.ledger), self.window)
                session.opened(opened, resumed=True)
                self._draft(session, generation)
            await self._follow(session, generation, None)
        finally:
            generation.cancel()
        finished = generation.finished
        if finished is None or finished.error is not None:
            raise RuntimeError(f"the stream ended with {finished}")
        self.usage = finished.usage
        return session.ledger.tokens

    async def _follow(self, session: DraftingSession, generation: Generation, until: int | None) -> bool:
        """Take commits and draft on; True once `until` tokens are held, False at the stream's end."""
        async with aclosing(generation.events(session.head)) as events:
            async for event in events:
                if isinstance(event, Commit):
                    session.commit(frames.Commit(0, event.start, event.tokens, event.drafted))
                    if until is not None and session.head >= until:
                        return True
                elif isinstance(event, Refused):
                    session.refused(frames.Error(0, "draft_refused", epoch=event.lowest_epoch))
                self._draft(session, generation)
        return False

    def _draft(self, session: DraftingSession, generation: Generation) -> None:
        stuck = False
        while session.wants_draft and not stuck:
            token = self.drafts.token(session.end)
            stuck = token is None
            if token is not None:
                session.draft(token)
        block = session.next_block(flush=stuck)
        if block is not None:
            generation.offer(block.epoch, block.start, block.tokens)


async def _away(generation: Generation) -> None:
    """The edge is gone until the stream has parked or ended; then somebody is back."""
    generation.detach()
    parked = generation.delivered + PARK_AHEAD
    async with aclosing(generation.events(len(generation.ledger))) as events:
        while len(generation.ledger) < parked and generation.finished is None:
            if await anext(events, None) is None:
                break
    generation.attach()


def first_difference(output: Sequence[int], reference: Sequence[int]) -> int | None:
    """Where two outputs part; None if they are equal."""
    for i, (ours, theirs) in enumerate(zip(output, reference, strict=False)):
        if ours != theirs:
            return i
    return None if len(output) == len(reference) else min(len(output), len(reference))
