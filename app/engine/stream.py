"""One stream on the engine's side: its context, its mailbox of drafts, and how far the KV cache has got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.engine.auto import Outlook
from app.engine.base import Request
from edge.protocol.ledger import Ledger
from edge.protocol.verifying import Offered, Verifier


@dataclass(slots=True, eq=False)
class Stream:
    request: Request
    ledger: Ledger
    verifier: Verifier
    max_tokens: int
    """Of the output: what was asked for, or what the context holds."""
    context: list[int]
    """Prompt and output."""
    sequence: int | None = None
    """Its slot in the KV cache; None: queued, or over."""
    cached: int = 0
    """How many tokens of the context the KV cache holds."""
    park_at: int | None = None
    """Nobody reads it: it never holds and stops at this length, until somebody reads again."""
    steps: int = 0
    """Steps that gave it at least one token."""
    outlook: Outlook | None = None
    """What its drafts are worth; the scheduler's, from when it is queued."""
    grows_by: int | None = None
    """Room in the KV cache that is kept for its output, tokens; None: for all of it."""
    _arrivals: list[tuple[int, float]] = field(default_factory=list)
    """Of the pending drafts: where each piece ends in the output, and when it came (seconds). A list: an empty deque
    takes 600 bytes, and these are few."""

    @classmethod
    def of(cls, request: Request, *, context: int, vocabulary: int = 2**31, held_tokens: int = 256) -> Stream:
        """`context`: how many tokens prompt and output may have together. `vocabulary`: number of ids."""
        ledger = Ledger(request.committed)
        verifier = Verifier(ledger, request.policy, request.hold_s, held_tokens, vocabulary=vocabulary)
        max_tokens = min(request.max_tokens, context - len(request.prompt))
        return cls(request, ledger, verifier, max_tokens, [*request.prompt, *request.committed])

    @property
    def head(self) -> int:
        return len(self.ledger)

    @property
    def missing(self) -> int:
        """Tokens of the context that have yet to be computed: 1 while decoding, more before."""
        return len(self.context) - self.cached

    @property
    def reserved(self) -> int:
        """Tokens of the KV cache that are kept for it."""
        most = len(self.request.prompt) + self.max_tokens
        return most if self.grows_by is None else min(most, len(self.context) + self.grows_by)

    @property
    def parked(self) -> bool:
        """Whether it has come to where it stops until somebody reads."""
        return self.park_at is not None and self.head >= self.park_at

    def due(self, now: float) -> bool:
        """Whether it should be stepped at `now` (seconds)."""
        if self.request.rule == "typical":
            return bool(self.verifier.pending) and not self.parked
        return not self.parked if self.park_at is not None else self.verifier.ready(now)

    def waits_until(self) -> float | None:
        """When it becomes due by itself, if it is waiting for a draft."""
        if self.park_at is not None or self.request.rule == "typical":
            return None
        return self.verifier.waits_until()

    def draftable(self) -> int:
        """How many pending draft tokens can be of use in a step: its own token, if there is one, must fit behind."""
        end = self.max_tokens if self.park_at is None else min(self.max_tokens, self.park_at)
        own = 0 if self.request.rule == "typical" else 1
        return max(0, min(len(self.verifier.pending), end - self.head - own))

    def offer(self, epoch: int, start: int, tokens: Sequence[int], at: float) -> Offered:
        if epoch > self.verifier.epoch:
            self._arrivals.clear()
        before = len(self.verifier.pending)
        if self.outlook is None:
            offered = self.verifier.offer(epoch, start, tokens)
        else:
            offered = self.outlook.offer(self.verifier, epoch, start, tokens, at)
        if len(self.verifier.pending) > (before if self._arrivals else 0):
            self._arrivals.append((self.head + len(self.verifier.pending), at))
        self._forget_arrivals()
        return offered

    def waited_s(self, now: float) -> float:
        """How long the oldest pending draft has waited; 0 if there is none."""
        return max(0.0, now - self._arrivals[0][1]) if self._arrivals else 0.0

    def take(self, tokens: Sequence[int], verified: int, now: float) -> None:
        """A step that checked `verified` drafts gave `tokens`."""
        if self.outlook is not None:
            self.outlook.take(self.verifier.pending, tokens, now)
        self.ledger.append(tokens)
        self.context.extend(tokens)
        self.verifier.stepped(tokens, verified, now)
        self.steps += 1
        self._forget_arrivals()

    def _forget_arrivals(self) -> None:
        if not self.verifier.pending:
            self._arrivals.clear()
        while self._arrivals and self._arrivals[0][0] <= self.head:
            del self._arrivals[0]
