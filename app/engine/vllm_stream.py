"""One stream inside vLLM's EngineCore process: its mailbox of drafts, and when its request is due. No vllm import.

ADD ──► decoding ──due──► candidates ──► vLLM's step ──► taken ──► decoding, or over
           │
           ├── holds: nothing to check, and its policy waits a while for it
           └── parked: nobody reads it, and it has come to where it stops

Where vLLM plans a step while the one before still runs, `flying` tokens lie between the head and what is planned: as
many as there will be if all drafts under way are accepted. If they aren't, what was planned behind them is of no use,
and does no harm: it is drafts that are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from app.engine.auto import Outlook
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
    tenant: str = ""
    weight: float = 1.0
    drafter: str = ""


class Report(NamedTuple):
    """Goes with every output. Counts are since the stream's beginning, so that merged outputs lose nothing."""

    drafted: int
    verified: int
    accepted: int
    matched: int
    steps: int
    step_s: float
    """Duration of the step that gave this output, as the scheduler saw it."""
    queue_s: float
    """How long the oldest of the drafts it checked had waited."""
    step_tokens: int = 0
    """Of all streams, in that step."""
    worthwhile: bool = True
    """Whether drafting further ahead than one token pays."""


@dataclass(slots=True, eq=False)
class RemoteStream:
    id: str
    verifier: Verifier
    max_tokens: int
    """Of the whole output, `committed` included."""
    tenant: str = ""
    weight: float = 1.0
    drafter: str = ""
    outlook: Outlook | None = None
    """What its drafts are worth; of streams that are decided upon, from when they are queued."""
    park_at: int | None = None
    """Nobody reads it: it never holds and stops at this length, until somebody reads again."""
    steps: int = 0
    step_s: float = 0.0
    queue_s: float = 0.0
    step_tokens: int = 0
    worthwhile: bool = True
    gave: int = 0
    """Tokens that the step whose output is being taken has given it."""
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
        of_tenant = opening.tenant, opening.weight, opening.drafter
        return cls(opening.stream, verifier, len(ledger) + max_tokens, *of_tenant)

    @property
    def head(self) -> int:
        return self.verifier.head

    @property
    def decided(self) -> bool:
        """Whether what its steps check is decided for all such streams together."""
        return self.verifier.policy == "auto" and self.park_at is None

    @property
    def parked(self) -> bool:
        """Whether it has come to where it stops until somebody reads."""
        return self.park_at is not None and self.head >= self.park_at

    def due(self, now: float, flying: int = 0) -> bool:
        """Whether it should be stepped at `now` (seconds), behind `flying` tokens."""
        if self.park_at is not None:
            return self.head + flying < self.park_at
        if self.verifier.policy in ("eager", "auto"):
            return True
        return len(self.verifier.pending) > flying if flying else self.verifier.ready(now)

    def waits_until(self) -> float | None:
        """When it becomes due by itself, if it is waiting for a draft."""
        return None if self.park_at is not None else self.verifier.waits_until()

    def offer(self, epoch: int, start: int, tokens: Sequence[int], now: float) -> int | None:
        """Take a draft. Returns the lowest epoch that is taken again if it was refused."""
        new = epoch > self.verifier.epoch or not self.verifier.pending
        if self.outlook is None:
            offered = self.verifier.offer(epoch, start, tokens)
        else:
            offered = self.outlook.offer(self.verifier, epoch, start, tokens, now)
        if new:
            self._arrived = now if self.verifier.pending else None
        return self.verifier.lowest_epoch if offered is Offered.REFUSED else None

    def draftable(self, flying: int = 0) -> int:
        """How many pending drafts can be of use in a step behind `flying` tokens: its own must fit behind them."""
        pending = len(self.verifier.pending)
        if not pending:
            return 0
        end = self.max_tokens if self.park_at is None else min(self.max_tokens, self.park_at)
        return max(0, min(pending, end - self.head - 1) - flying)

    def candidates(self, limit: int, now: float, flying: int = 0) -> list[int]:
        """At most `limit` drafts for the step that begins now: no more than can be of use."""
        count = min(limit, self.draftable(flying))
        self.queue_s = now - self._arrived if count > 0 and self._arrived is not None else 0.0
        return self.verifier.pending[flying : flying + count]

    def take(self, tokens: Sequence[int], checked: Sequence[int], now: float, step_s: float) -> None:
        """A step that checked the drafts `checked` gave `tokens`."""
        if self.outlook is not None:
            self.outlook.take(self.verifier.pending, tokens, now)
        self.verifier.stepping(checked)
        self.verifier.ledger.append(tokens)
        self.verifier.stepped(tokens, len(checked), now)
        self.steps += 1
        self.gave += len(tokens)
        self.step_s = step_s
        if not self.verifier.pending:
            self._arrived = None

    def report(self) -> Report:
        stats = self.verifier.stats
        counts = stats.drafted, stats.verified, stats.accepted, stats.matched, self.steps
        return Report(*counts, self.step_s, self.queue_s, self.step_tokens, self.worthwhile)
