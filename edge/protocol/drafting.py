"""The edge's state machine: it drafts ahead of the cloud's commits and reconciles when they land.

What it knows of a stream is a committed prefix (the ledger), a speculative tail right behind it, how much of the tail
has been sent, and an epoch:

    position   0            head              sent             end
               │ committed   │ tail: in flight │ tail: not sent │
               └─ ledger ────┴──────────── tail ────────────────┘

Rules (docs/protocol.md gives each with the schedule that breaks without it):
1. A commit is compared with the tail. Equal: those tokens move into the ledger and drafting goes on, undisturbed.
   Different: the tail is rolled back at the first difference, the commit is taken, the epoch rises. The commit goes
   past the tail: the drafter was overtaken, so the epoch rises and it goes on from the commit's end.
2. The epoch also rises on resume and when the cloud refused a draft; then the tail stays and all of it is sent again.
   So an epoch's first draft always starts at the head and its drafts are one contiguous path: a draft lost with a
   socket can't leave a hole in the cloud's mailbox.
3. At most `ahead` tokens are drafted past the head. Drafts travel in blocks of `block` tokens; a partial block is sent
   whenever drafting stops (window full, drafter out of ideas), or the cloud could hold a stream for tokens that sit
   here.

No input can make it wait for the cloud, except a full window. Policy `sync` is a `limit` of one block: no code of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edge.protocol.errors import Contradiction
from edge.protocol.frames import Commit, Draft, Error, Finish, Opened, Window
from edge.protocol.ledger import Ledger, agreement


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What one commit changed. The drafter keeps the first `keep` output tokens of its cache and then takes `feed`."""

    committed: tuple[int, ...]
    """Tokens that are output since this commit (an overlap is left out)."""
    agreed: int
    """How many of them the tail had: they equal what was drafted."""
    rolled_back: tuple[int, ...]
    """Drafts that are gone."""
    keep: int
    """Without a rollback this is all that the drafter's cache holds."""
    feed: tuple[int, ...]


@dataclass(slots=True)
class DraftingStats:
    """Counts over a stream's life, in tokens except where said. Always: drafted = agreed + rolled_back + len(tail)."""

    drafted: int = 0
    sent: int = 0
    """Each position of an epoch once."""
    agreed: int = 0
    rolled_back: int = 0
    """Drafts that came to nothing, those left over at the end included."""
    rollbacks: int = 0
    """Number of rollbacks; the end is none."""
    accepted: int = 0
    """The cloud's count: drafts that were verified in time."""


@dataclass(slots=True)
class DraftingSession:
    """One stream, seen from the edge. `stream` changes on resume; positions and epochs go on."""

    stream: int
    window: int = 16
    """The cloud's word on how far ahead drafting is worth it, in tokens past the head."""
    block: int = 1
    epoch: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    tail: list[int] = field(default_factory=list)
    finish: Finish | None = None
    stats: DraftingStats = field(default_factory=DraftingStats)
    limit: int | None = None
    """The edge's own bound, which no `window` lifts: one block under policy `sync`."""
    draft_tokens: int = 64
    """Most tokens in one frame, as `welcome` says: a tail that is sent again may be longer."""
    _sent: int = 0

    def __post_init__(self) -> None:
        self._sent = len(self.ledger)

    @property
    def head(self) -> int:
        """Number of committed tokens."""
        return len(self.ledger)

    @property
    def end(self) -> int:
        """Position of the next token to draft."""
        return len(self.ledger) + len(self.tail)

    @property
    def ahead(self) -> int:
        """How many tokens past the head may be drafted; at least 1."""
        return max(1, self.window if self.limit is None else min(self.window, self.limit))

    @property
    def wants_draft(self) -> bool:
        return self.finish is None and len(self.tail) < self.ahead

    def draft(self, token: int) -> None:
        """The drafter's next token, for position `end`."""
        self.tail.append(token)
        self.stats.drafted += 1

    def next_block(self, *, flush: bool = False) -> Draft | None:
        """The draft to send now, if any: whole blocks, or all that is unsent if `flush` or if drafting has stopped.

        Call it until it gives None: a frame holds at most `draft_tokens`.
        """
        unsent = self.end - self._sent
        if not (flush or not self.wants_draft):
            unsent -= unsent % self.block
        if unsent <= 0 or self.finish is not None:
            return None
        unsent = min(unsent, self.draft_tokens)
        start = self._sent
        offset = start - self.head
        self._sent += unsent
        self.stats.sent += unsent
        return Draft(self.stream, self.epoch, start, tuple(self.tail[offset : offset + unsent]))

    def commit(self, frame: Commit) -> Reconciliation:
        """Take a commit. Raises Gap or Contradiction (the cloud broke the protocol); then nothing has changed."""
        before = self.head
        new = self.ledger.apply(frame.start, frame.tokens)
        agreed = agreement(self.tail, new)
        self.stats.agreed += agreed
        self.stats.accepted += min(frame.drafted, len(new))
        if agreed == len(new):
            del self.tail[:agreed]
            self._sent = max(self._sent, self.head)
            return Reconciliation(new, agreed, (), self.end, ())
        # Overtaken (nothing left in the tail to compare) or contradicted: both begin an epoch at the head.
        rolled_back = tuple(self.tail[agreed:])
        self.stats.rolled_back += len(rolled_back)
        self.stats.rollbacks += bool(rolled_back)
        self.tail.clear()
        self._begin_epoch()
        return Reconciliation(new, agreed, rolled_back, before + agreed, new[agreed:])

    def opened(self, frame: Opened, *, resumed: bool = False) -> None:
        """The cloud's answer. Raises Contradiction if the cloud knows less than we do.

        `resumed`: it answers a `resume`, or an `open` that carries `committed` to another gateway. Drafts that were
        sent before may then be lost, so all of the tail is sent again.
        """
        if frame.head < self.head:
            raise Contradiction(f"{self.head} tokens are held, the cloud says {frame.head}")
        self.stream = frame.stream
        self.window = frame.window
        if resumed or frame.epoch > self.epoch:
            self._begin_epoch(frame.epoch)

    def refused(self, frame: Error) -> None:
        """The cloud refused a draft: send all of the tail again, under a new epoch. Late ones are ignored."""
        if frame.epoch is not None and frame.epoch > self.epoch:
            self._begin_epoch(frame.epoch)

    def widen(self, frame: Window) -> None:
        """The cloud says how far ahead drafting is worth it now. A tail beyond it stays; drafting just pauses."""
        self.window = frame.ahead

    def finished(self, frame: Finish) -> tuple[int, ...]:
        """The stream is over; returns the drafts that came to nothing. Raises Contradiction if tokens are missing."""
        if frame.length != self.head:
            raise Contradiction(f"finish says {frame.length} tokens, {self.head} are held")
        self.finish = frame
        left, self.tail = tuple(self.tail), []
        self.stats.rolled_back += len(left)
        return left

    def _begin_epoch(self, lowest: int = 0) -> None:
        self.epoch = max(self.epoch + 1, lowest)
        self._sent = self.head
