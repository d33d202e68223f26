"""One stream inside vLLM's EngineCore process: its mailbox of drafts, and when its request is due. No vllm import.

ADD ──► decoding ──due──► candidates ──► vLLM's step ──► taken ──► decoding, or over
           │
           ├── holds: nothing to check, and its policy waits a while for it
           └── parked: nobody reads it, and it has come to where it stops
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from edge.protocol.frames import Policy
from edge.protocol.ledger import Ledger
from edge.protocol.verifying import Offered, Verifier

KEY: Final = "paceline"
"""Of `SamplingParams.extra_args` on the way in, of `kv_transfer_params` on the way out: the two fields of a request
that vLLM carries between its processes as they are."""


class Opening(NamedTuple):
    """What a request says of its stream. Of msgpack's plain types, since vLLM carries it."""

    stream: str
    policy: Policy
    hold_s: float
    held_tokens: int
    committed: tuple[int, ...]
    vocabulary: int


class Report(NamedTuple):
    """Goes with every output. All counts are since the stream's beginning, so that merged outputs lose nothing."""

    drafted: int
    verified: int
    accepted: int
    matched: int
    steps: int
    step_s: float
    """Duration of the step that gave this output, as the scheduler saw it."""
    queue_s: float
    """How long the oldest of the drafts it checked had waited."""


@dataclass(slots=True, eq=False)
class RemoteStream:
    id: str
    verifier: Verifier
    max_tokens: int
    """Of the whole output, `committed` included."""
    park_at: int | None = None
    """Nobody reads it: it never holds and stops at this length, until somebody reads again."""
    steps: int = 0
    step_s: float = 0.0
    queue_s: float = 0.0
    checked: int = 0
    """Drafts that went into the step under way."""
    _arrived: float | None = field(default=None)
    """When the oldest of the pending drafts came."""

    @classmethod
    def of(cls, extra_args: Mapping[str, Any] | None, max_tokens: int) -> RemoteStream | None:
        """The stream that a request speaks of; None: an ordinary request. `max_tokens`: of what vLLM will add."""
        said = (extra_args or {}).get(KEY)
        if said is None:
            return None
        opening = Opening(*said)
        ledger = Ledger(opening.committed)
        verifier = Verifier(ledger, opening.policy, opening.hold_s, opening.held_tokens, vocabulary=opening.vocabulary)
        return cls(opening.stream, verifier, len(ledger) + max_tokens)

    @property
    def head(self) -> int:
        return len(self.verifier.ledger)

    @property
    def parked(self) -> bool:
        """Whether it has come to where it stops until somebody reads."""
        return self.park_at is not None and self.head >= self.park_at

    def due(self, now: float) -> bool:
        """Whether it should be stepped at `now` (seconds)."""
        return not self.parked if self.park_at is not None else self.verifier.ready(now)

    def waits_until(self) -> float | None:
        """When it becomes due by itself, if it is waiting for a draft."""
        return None if self.park_at is not None else self.verifier.waits_until()

    def offer(self, epoch: int, start: int, tokens: Sequence[int], now: float) -> int | None:
        """Take a draft. Returns the lowest epoch that is taken again if it was refused."""
        new = epoch > self.verifier.epoch or not self.verifier.pending
        offered = self.verifier.offer(epoch, start, tokens)
        if new:
            self._arrived = now if self.verifier.pending else None
        return self.verifier.lowest_epoch if offered is Offered.REFUSED else None

    def candidates(self, limit: int, now: float) -> list[int]:
        """At most `limit` drafts for the step that begins now: no more than can be of use, since its own token must
        fit behind them.
        """
        end = self.max_tokens if self.park_at is None else min(self.max_tokens, self.park_at)
        candidates = self.verifier.candidates(max(0, min(limit, end - self.head - 1)))
        self.queue_s = now - self._arrived if candidates and self._arrived is not None else 0.0
        return list(candidates)

    def take(self, tokens: Sequence[int], now: float, step_s: float) -> None:
        """A step that checked `checked` drafts gave `tokens`."""
        self.verifier.ledger.append(tokens)
        self.verifier.stepped(tokens, self.checked, now)
        self.checked = 0
        self.steps += 1
        self.step_s = step_s
        if not self.verifier.pending:
            self._arrived = None

    def report(self) -> Report:
        stats = self.verifier.stats
        return Report(
            stats.drafted, stats.verified, stats.accepted, stats.matched, self.steps, self.step_s, self.queue_s
        )
