"""A simulated device: what it drafts and when that arrives, computed only as far as the cloud has to know.

It keeps the rules of edge/protocol/drafting.py and edge/run.py in five numbers, since a draft token is either right or
wrong and a wrong one spoils all behind it: draft ahead up to the window, one token after another; a commit that agrees
changes nothing; one that doesn't, or outruns the tail, begins an epoch at its end, and the token under way is thrown
away when it is done. The window is `edge.pacing`'s own.

Nothing happens by itself: `advance(now)` replays what the device did until `now`, which commits it had received
decide. So a stream costs the simulation a call per step and not one per draft token, message and timer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

RIGHT: Final = 1
"""The target's token at every position; a wrong draft is `WRONG`."""
WRONG: Final = 0


@dataclass(slots=True)
class Link:
    """One direction of a connection: delays vary, order stays."""

    delay_s: Callable[[], float]
    _last: float = 0.0

    def arrival(self, now: float) -> float:
        self._last = max(self._last, now + self.delay_s())
        return self._last


@dataclass(slots=True)
class Device:
    """All times in seconds on the simulation's clock; positions are those of the output."""

    right: Callable[[int], bool]
    """Whether the draft for a position is right, made behind the right prefix."""
    draft_s: float
    """math.inf: it doesn't draft."""
    up: Link
    down: Link
    tokens: int
    """Of the whole output."""
    window: Callable[[int, int, float], int]
    """From agreed and differed drafts of a commit and its step's seconds: tokens past the head at most."""
    block: int = 1
    drafted: int = 0
    wasted: int = 0
    head: int = 0
    first: float = math.nan
    last: float = math.nan
    """When the first and the last commit so far arrived."""
    _ahead: int = 1
    _end: int = 0
    _sent: int = 0
    _epoch: int = 1
    _wrong_at: float = math.inf
    _ready: float = math.inf
    """When the token under way is done; inf: none is."""
    _stale: bool = False
    _mail: deque[tuple[float, int, int, list[int]]] = field(default_factory=deque)
    """On its way up: when it arrives, epoch, start, tokens."""
    _commits: deque[tuple[float, int, float]] = field(default_factory=deque)
    """On their way down: when it arrives, the head behind it, seconds of its step."""

    def open(self, now: float) -> None:
        """The stream begins: the device drafts from here on."""
        self._ahead = self.window(0, 0, 0.0)
        self._begin(now)

    def commit(self, now: float, head: int, step_s: float) -> None:
        """The cloud sends a commit at `now`, which ends at `head`."""
        self._commits.append((self.down.arrival(now), head, step_s))

    def advance(self, now: float) -> None:
        """Do what it did until `now`. The cloud must have sent all that it had to send before."""
        while (at := self.next_event()) <= now:
            if self._commits and self._commits[0][0] == at:
                self._take(*self._commits.popleft())
            else:
                self._propose(at)

    def settle(self) -> None:
        """The stream is over: take the commits that are still on their way."""
        while self._commits:
            self.advance(self._commits[0][0])

    def next_event(self) -> float:
        """When something happens here, unless the cloud sends something before; inf: nothing will."""
        return min(self._ready, self._commits[0][0]) if self._commits else self._ready

    def next_arrival(self) -> float:
        """When the next draft on its way up arrives."""
        return self._mail[0][0] if self._mail else math.inf

    def received(self, now: float) -> tuple[float, int, int, list[int]] | None:
        """The next draft that has arrived by `now`: when, its epoch, start and tokens."""
        return self._mail.popleft() if self._mail and self._mail[0][0] <= now else None

    def _begin(self, now: float) -> None:
        going = self._end - self.head < self._ahead and self._end < self.tokens
        self._ready = now + self.draft_s if going else math.inf

    def _propose(self, now: float) -> None:
        self.drafted += 1
        if self._stale:
            self._stale = False
            self.wasted += 1
        else:
            if self._wrong_at == math.inf and not self.right(self._end):
                self._wrong_at = self._end
            self._end += 1
        self._send(now)
        self._begin(now)

    def _send(self, now: float) -> None:
        unsent = self._end - self._sent
        if self._end - self.head < self._ahead and self._end < self.tokens:
            unsent -= unsent % self.block
        if unsent:
            tokens = [WRONG if i >= self._wrong_at else RIGHT for i in range(self._sent, self._sent + unsent)]
            self._mail.append((self.up.arrival(now), self._epoch, self._sent, tokens))
            self._sent += unsent

    def _take(self, now: float, head: int, step_s: float) -> None:
        self.first = now if self.head == 0 else self.first
        self.last = now
        start, self.head = self.head, head
        contradicted = self._wrong_at < head
        agreed = int(min(self._wrong_at, self._end, head)) - start
        if contradicted or head > self._end:
            self.wasted += self._end - start - agreed
            self._epoch += 1
            self._end = self._sent = head
            self._wrong_at = math.inf
            self._stale = self._ready < math.inf
        self._sent = max(self._sent, head)
        self._ahead = self.window(agreed, int(contradicted), step_s)
        self._send(now)
        if self._ready == math.inf:
            self._begin(now)
