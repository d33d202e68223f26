"""Event simulation of DESIGN §1's schemes: what an ideal implementation would need per token, on a virtual clock.

Written from the schemes' definitions and not from the product's state machines, so that a fault in those shows as a
difference. The edge drafts one token after another and sends them in blocks; the cloud steps with the drafts that have
arrived, or (`hold`) only once one has; commits travel back and correct the edge.

Given is an acceptance pattern: `pattern[i]` says whether the draft for output position i, made behind the right prefix,
is the target's token. Behind a wrong draft everything is wrong until the edge has heard of it.

A call of a draft model that is under way can't be abandoned: after a rollback the edge finishes the token at hand and
throws it away. That is what our drafters do, and costs half a draft's time per rollback (up to 4% per token at these
figures). `abandon` simulates a drafter that can, which is what DESIGN §1 quotes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Scheme = Literal["eager", "hold"]


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in seconds."""

    draft_s: float
    """t_d: one draft token."""
    step_s: float
    """t_v: one target step, however many tokens it checks."""
    rtt_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    itl_s: float
    """(last − first token's arrival at the client) / (n − 1), seconds."""
    steps_per_token: float
    """Target steps per output token."""


@dataclass(slots=True)
class _Edge:
    head: int = 0
    end: int = 0
    """Position behind the last drafted token."""
    sent: int = 0
    epoch: int = 0
    wrong: bool = False
    """The tail holds a wrong draft."""
    busy: bool = False


@dataclass(slots=True)
class _Cloud:
    head: int = 0
    epoch: int = 0
    arrived: int = 0
    """Position behind the last draft token of this epoch that has arrived."""
    dead_at: int | None = None
    """Where this epoch leaves the target's path, once that has arrived."""
    busy: bool = False
    steps: int = 0


@dataclass(slots=True)
class _Simulation:
    pattern: Sequence[bool]
    times: Times
    scheme: Scheme
    window: int
    block: int
    drafting: bool
    abandon: bool = False
    edge: _Edge = field(default_factory=_Edge)
    cloud: _Cloud = field(default_factory=_Cloud)
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    """(time, head) of each commit at the edge."""
    _events: list[tuple[float, int, str, tuple[int, ...]]] = field(default_factory=list)
    _count: int = 0

    def run(self) -> Outcome:
        """The prompt's own step, which no draft can speed up, gives the first token."""
        self._start_step(0.0)
        if self.drafting:
            self._at(self.times.rtt_s / 2, "opened", ())
        goal = len(self.pattern)
        while self.edge.head < goal:
            now, _, kind, data = heapq.heappop(self._events)
            getattr(self, f"_on_{kind}")(now, *data)
        first, last = self.arrivals[0], self.arrivals[-1]
        return Outcome((last[0] - first[0]) / (goal - 1), self.cloud.steps / goal)

    def _at(self, time: float, kind: str, data: tuple[int, ...]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, kind, data))

    # The edge.

    def _on_opened(self, now: float) -> None:
        self._draft(now)

    def _draft(self, now: float) -> None:
        edge = self.edge
        if not self.drafting or edge.busy or edge.end - edge.head >= self.window or edge.end >= len(self.pattern):
            return
        edge.busy = True
        self._at(now + self.times.draft_s, "drafted", (edge.epoch,))

    def _on_drafted(self, now: float, epoch: int) -> None:
        edge = self.edge
        if self.abandon and epoch != edge.epoch:
            return
        edge.busy = False
        if epoch == edge.epoch:
            edge.wrong = edge.wrong or not self.pattern[edge.end]
            edge.end += 1
            self._send(now)
        self._draft(now)

    def _send(self, now: float) -> None:
        edge = self.edge
        unsent = edge.end - edge.sent
        full = edge.end - edge.head >= self.window or edge.end >= len(self.pattern)
        if not full:
            unsent -= unsent % self.block
        if unsent > 0:
            self._at(now + self.times.rtt_s / 2, "draft", (edge.epoch, edge.sent, unsent))
            edge.sent += unsent

    def _on_commit(self, now: float, start: int, head: int) -> None:
        edge = self.edge
        drafted = range(start, min(head, edge.end))
        mismatch = edge.wrong and not all(self.pattern[i] for i in drafted)
        edge.head = head
        if mismatch or head > edge.end:
            edge.epoch += 1
            edge.end = edge.sent = head
            edge.wrong = False
            edge.busy = edge.busy and not self.abandon
        self.arrivals.append((now, head))
        self._send(now)
        self._draft(now)

    # The cloud.

    def _on_draft(self, now: float, epoch: int, start: int, count: int) -> None:
        cloud = self.cloud
        if epoch > cloud.epoch:
            cloud.epoch, cloud.dead_at, cloud.arrived = epoch, None, start
        if cloud.dead_at is None:
            cloud.dead_at = next((i for i in range(start, start + count) if not self.pattern[i]), None)
        cloud.arrived = start + count
        self._start_step(now)

    def _candidates(self) -> tuple[int, int]:
        """Number of candidates, and of those that will be accepted."""
        cloud = self.cloud
        if cloud.dead_at is not None and cloud.dead_at < cloud.head:
            return 0, 0
        held = max(0, cloud.arrived - cloud.head)
        return held, held if cloud.dead_at is None else min(held, cloud.dead_at - cloud.head)

    def _start_step(self, now: float) -> None:
        cloud = self.cloud
        held, accepted = self._candidates()
        waits = self.scheme == "hold" and not held and cloud.steps > 0
        if cloud.busy or waits or cloud.head >= len(self.pattern):
            return
        cloud.busy = True
        cloud.steps += 1
        self._at(now + self.times.step_s, "stepped", (accepted + 1,))

    def _on_stepped(self, now: float, tokens: int) -> None:
        cloud = self.cloud
        cloud.busy = False
        start, cloud.head = cloud.head, min(cloud.head + tokens, len(self.pattern))
        self._at(now + self.times.rtt_s / 2, "commit", (start, cloud.head))
        self._start_step(now)


def simulate(
    pattern: Sequence[bool],
    times: Times,
    scheme: Scheme,
    *,
    window: int = 64,
    block: int = 1,
    abandon: bool = False,
) -> Outcome:
    """`eager` or `hold`, drafting at most `window` tokens past the last commit, sent in blocks of `block`."""
    return _Simulation(pattern, times, scheme, window, block, drafting=True, abandon=abandon).run()


def simulate_cloud(pattern: Sequence[bool], times: Times) -> Outcome:
    """The target alone, streamed."""
    return _Simulation(pattern, times, "eager", 1, 1, drafting=False).run()


def simulate_sync(pattern: Sequence[bool], times: Times, length: int) -> Outcome:
    """Draft `length` tokens, wait for the verdict, and so on: hold with a window of one block."""
    return simulate(pattern, times, "hold", window=length, block=length)


def best_sync(pattern: Sequence[bool], times: Times, longest: int = 24) -> tuple[int, Outcome]:
    """The draft length that is best on this very pattern, so that the baseline is as good as it can be."""
    outcomes = {length: simulate_sync(pattern, times, length) for length in range(1, longest + 1)}
    length = min(outcomes, key=lambda n: outcomes[n].itl_s)
    return length, outcomes[length]
