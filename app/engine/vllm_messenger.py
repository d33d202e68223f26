"""Drafts and parkings on their way to EngineCore: those that come together go in one call.

Drafts that arrive together must get there together: handed over one by one, the first would start a step and leave the
others for the next. No call waits for the answer of the one before, since that would cost a draft a step. But a call
costs the event loop a third of a millisecond, whatever it carries: so what comes right behind a call is gathered for a
moment, and many devices cost no more than a few do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

logger = logging.getLogger(__name__)

_CALLS: Final = 32
"""Calls under way; what comes meanwhile is gathered for the next."""
GAP_S: Final = 0.008
"""Between two calls, at least: little beside a step."""


class Messenger:
    """Lives on the event loop. Over `bound` a draft is dropped: it is a hint, and the hole it leaves is refused."""

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        refused: Callable[[str, int], None],
        *,
        bound: int = 4096,
        gap_s: float = GAP_S,
    ) -> None:
        """`call(name, argument)` calls in EngineCore. `refused` is told (stream, lowest epoch that is taken again)."""
        self._gap_s = gap_s
        self._next_at = 0.0
        self._call = call
        self._refused = refused
        self._bound = bound
        self._drafts: list[tuple[str, int, int, Sequence[int]]] = []
        self._parks: dict[str, int | None] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._scheduled = False

    def offer(self, stream: str, epoch: int, start: int, tokens: Sequence[int]) -> None:
        if len(self._drafts) < self._bound:
            self._drafts.append((stream, epoch, start, tokens))
            self._schedule()

    def park(self, stream: str, at: int | None) -> None:
        self._parks[stream] = at
        self._schedule()

    async def delivered(self) -> None:
        """Wait until all that was handed in is answered."""
        while self._scheduled or self._calls:
            await (asyncio.wait(self._calls) if self._calls else asyncio.sleep(self._gap_s))

    async def close(self) -> None:
        """Wait for no answer any more."""
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _schedule(self) -> None:
        if not self._scheduled and len(self._calls) < _CALLS:
            self._scheduled = True
            loop = asyncio.get_running_loop()
            if loop.time() >= self._next_at:
                loop.call_soon(self._send)
            else:
                loop.call_at(self._next_at, self._send)

    def _send(self) -> None:
        self._scheduled = False
        self._next_at = asyncio.get_running_loop().time() + self._gap_s
        drafts, self._drafts = self._drafts, []
        parks, self._parks = self._parks, {}
        task = asyncio.ensure_future(self._deliver(drafts, list(parks.items())))
        self._calls.add(task)
        task.add_done_callback(self._delivered)

    async def _deliver(self, drafts: Sequence[Any], parks: Sequence[tuple[str, int | None]]) -> None:
        if parks:
            await self._call("paceline_park", parks)
        for stream, lowest_epoch in await self._call("paceline_offer", drafts) if drafts else ():
            self._refused(stream, lowest_epoch)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A dead engine is told by every stream itself; drafts are hints.
            logger.debug("drafts_undelivered", exc_info=error)
        if self._drafts or self._parks:
            self._schedule()
