"""The cloud's state machine: what becomes of the drafts of one stream. It lives next to the engine's head.

Drafts are hints, never gates: nothing that arrives here can change a stream's text or stall it.

    offer ──► path check ──► pending ──► candidates ──► the engine's step ──► stepped
                  │                                                             │
                  └── stale, dropped or refused                  mismatch: the epoch is dead

Rules (docs/protocol.md gives each with the schedule that breaks without it):
1. An epoch higher than the current one replaces the mailbox; a lower one is ignored.
2. A draft's tokens behind the head are compared with what was committed there. Equal: the rest continues the path and
   waits as `pending`, candidates for the next step. Different: the epoch is dead, and all that comes of it is dropped
   and counted.
3. A draft must start at or behind the end of what is pending. One that starts past it left a hole: it is refused, once
   per epoch, and the edge answers with a higher epoch from its last commit. What is pending before the hole stays good.
   A draft that contradicts its own epoch, or holds an id outside the vocabulary, is refused alike.
4. `hold` (and `sync`, which differs on the edge only) waits at most `hold_s` after a step for a candidate. Two waits in
   vain make the stream eager until a draft matches again.
5. A candidate is accepted exactly when it equals the token that the sampling rule picks at its position. Streams of
   privacy mode `draft_only` have a second rule, typical acceptance: a candidate that the target finds plausible passes.
   Such a stream is stepped only when it has candidates, and gets no token of the target's own behind accepted ones: the
   target, which hasn't seen the prompt, would be guessing. It is the one kind of stream that a draft can change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from edge.protocol.frames import Policy
from edge.protocol.ledger import Ledger, agreement


class Offered(Enum):
    """What became of a draft."""

    TAKEN = "taken"
    STALE = "stale"
    """Of an epoch that is over; not counted."""
    DROPPED = "dropped"
    """Its path, or an earlier draft's of its epoch, left the committed output."""
    REFUSED = "refused"
    """It left a hole or can't be; the edge is told `lowest_epoch`."""


@dataclass(slots=True)
class VerifyingStats:
    """Counts over a stream's life, in draft tokens.

    Always: drafted = accepted + matched + dropped + len(pending), and agreed ≤ compared ≤ agreed + number of epochs.
    Drafts that are sent again, under a higher epoch, are drafted and dropped again; a position is compared once.
    """

    drafted: int = 0
    """Received, each position of an epoch once."""
    verified: int = 0
    """Were candidates in a step, whatever came of them."""
    accepted: int = 0
    matched: int = 0
    """Came too late to be verified, and equal what was committed."""
    compared: int = 0
    """Compared in a step or behind the head, up to and including the first difference."""
    dropped: int = 0
    """Came to nothing: differed, or lay behind a difference, past a hole or `held_tokens`, or in a replaced epoch."""

    @property
    def agreed(self) -> int:
        return self.accepted + self.matched

    @property
    def acceptance_rate(self) -> float | None:
        """α: agreed / compared, None before the first comparison."""
        return self.agreed / self.compared if self.compared else None


@dataclass(slots=True)
class Verifier:
    """One stream's mailbox. `ledger` is the engine's: the verifier reads it and is told when it has grown.

    A step is `candidates`, the engine's work, `stepped`. Drafts may be offered at any time, during a step as well.
    """

    ledger: Ledger
    policy: Policy = "eager"
    hold_s: float = 1.0
    held_tokens: int = 256
    epoch: int = 0
    pending: list[int] = field(default_factory=list)
    """Draft tokens for positions head, head + 1, …: candidates."""
    stats: VerifyingStats = field(default_factory=VerifyingStats)
    vocabulary: int = 2**31
    """Number of token ids of the target."""
    _dead: bool = False
    _seen: int = 0
    """End of the positions received in this epoch, so that a draft sent twice counts once."""
    _judged: int = 0
    """End of the positions whose drafts were compared, in any epoch, so that what is sent again doesn't sway α."""
    _stepping: tuple[int, ...] = ()
    """The candidates of the step under way."""
    _replaced: bool = False
    """A higher epoch began during the step: its candidates are no longer the beginning of `pending`."""
    _waiting_since: float | None = None
    _vain_waits: int = 0

    @property
    def head(self) -> int:
        return len(self.ledger.tokens)

    @property
    def lowest_epoch(self) -> int:
        """The lowest epoch of which a draft is taken for sure, whatever was lost on the way."""
        return self.epoch + 1 if self._seen else self.epoch

    def offer(self, epoch: int, start: int, tokens: Sequence[int]) -> Offered:
        """Take a draft. Never raises, whatever it holds; O(len(tokens))."""
        if epoch < self.epoch:
            return Offered.STALE
        if epoch > self.epoch:
            self._begin(epoch)
        seen = self._seen
        new = max(0, start + len(tokens) - max(start, seen))
        self._seen = max(seen, start + len(tokens))
        self.stats.drafted += new
        if self._dead:
            self.stats.dropped += new
            return Offered.DROPPED
        pending_end = self.head + len(self.pending)
        if start > pending_end or (tokens and not 0 <= min(tokens) <= max(tokens) < self.vocabulary):
            return self._refuse(new)
        if start == pending_end:  # nothing to compare it with
            return self._keep(tokens, start + len(tokens))
        return self._check_path(start, tokens, max(start, seen), new)

    def candidates(self, limit: int) -> tuple[int, ...]:
        """At most `limit` draft tokens to check in the step that begins now, for positions from the head on."""
        self._stepping = tuple(self.pending[:limit])
        self._replaced = False
        return self._stepping

    def stepping(self, candidates: Sequence[int]) -> None:
        """What the step checked of which `stepped` will tell next, where several steps are under way at a time."""
        self._stepping = tuple(candidates)
        self._replaced = bool(candidates) and self.pending[: len(candidates)] != list(candidates)

    def ready(self, now: float) -> bool:
        """Whether the stream should be stepped at `now` (seconds, any monotonic clock)."""
        until = self.waits_until()
        return until is None or now >= until

    def waits_until(self) -> float | None:
        """When the wait for a candidate ends by itself; None: it isn't waiting."""
        if self.pending or self._waiting_since is None or self.policy in ("eager", "auto"):
            return None
        if self._vain_waits >= 2:
            return None
        return self._waiting_since + self.hold_s

    def stepped(self, tokens: Sequence[int], verified: int, now: float) -> None:
        """A step that checked the first `verified` candidates gave `tokens`; call it once the ledger holds them too.

        `tokens` are the accepted candidates and one more, unless the output was cut at its end.
        """
        checked = self._stepping[:verified]
        agreed = agreement(self.pending, tokens)
        # What was checked begins what is pending, unless it was replaced meanwhile.
        accepted = agreement(checked, tokens) if self._replaced else min(agreed, len(checked))
        both = min(accepted, agreed)
        compared = max(min(len(self.pending), agreed + 1), min(len(checked), accepted + 1))
        compared = min(compared, len(tokens))
        self._judged = max(self._judged, self.head - len(tokens) + compared)
        self.stats.verified += verified
        self.stats.accepted += accepted
        self.stats.matched += agreed - both
        self.stats.compared += compared
        if self._replaced:  # the accepted ones were counted as dropped, and the new epoch brought some of them again
            self.stats.dropped += both - accepted
        if agreed == len(tokens) or agreed == len(self.pending):
            del self.pending[:agreed]
        else:
            self._dead = True
            self.stats.dropped += len(self.pending) - agreed
            self.pending.clear()
        if accepted or agreed:
            self._vain_waits = 0
        elif not verified and self._waiting_since is not None:
            self._vain_waits += 1
        self._waiting_since = now
        self._stepping, self._replaced = (), False

    def _begin(self, epoch: int) -> None:
        self.stats.dropped += len(self.pending)
        self.pending.clear()
        self.epoch = epoch
        self._dead = False
        self._seen = 0
        self._replaced = True

    def _refuse(self, new: int) -> Offered:
        self._dead = True
        self.stats.dropped += new
        return Offered.REFUSED

    def _check_path(self, start: int, tokens: Sequence[int], fresh: int, new: int) -> Offered:
        """`fresh`: the first position of the draft that its epoch had not brought before; `new`: how many there are."""
        head = self.head
        end, pending_end = start + len(tokens), head + len(self.pending)
        known = self.ledger.tokens[start:end]
        known += self.pending[max(0, start - head) : max(0, end - head)]
        left = start + agreement(known, tokens)  # where the draft leaves what is known
        first = max(fresh, self._judged)
        late = max(0, min(end, head) - first)
        matched = max(0, min(late, left - first))
        compared = min(late, matched + 1)
        self._judged = first + compared if compared else self._judged
        self.stats.matched += matched
        self.stats.compared += compared
        if matched:
            self._vain_waits = 0
        if left < min(end, pending_end):
            if left >= head:
                return self._refuse(new - matched)
            self._dead = True
            self.stats.dropped += new - matched
            return Offered.DROPPED
        self.stats.dropped += max(0, min(end, head) - fresh) - matched  # behind the head, but sent before
        return self._keep(tokens[len(known) :], end)

    def _keep(self, tokens: Sequence[int], end: int) -> Offered:
        """Of a draft that ends at `end`: what goes on from what is pending."""
        room = max(0, self.held_tokens - len(self.pending))
        self.pending.extend(tokens[:room])
        if room < len(tokens):  # what is past `held_tokens` counts as never received, should it come again
            self.stats.dropped += len(tokens) - room
            self._seen = end - len(tokens) + room
        return Offered.TAKEN


Rule = Literal["exact", "typical"]

TYPICAL_EPSILON: Final = 0.09
TYPICAL_DELTA: Final = 0.3
"""Medusa's (arXiv 2401.10774, section 2.3.1), δ = √ε."""


def plausible(logits: NDArray[np.float32], token: int) -> bool:
    """Typical acceptance by logits, (V,): p(token) ≥ min(ε, δ·e⁻ᴴ), H being the distribution's entropy in nats.

    Where the target is sure, few tokens pass; where it is not, many do (arXiv 2401.10774).
    """
    distances = logits.astype(np.float64) - float(logits.max())
    weights = np.exp(distances)
    total = weights.sum()
    entropy = np.log(total) - float(weights @ np.where(weights > 0, distances, 0.0)) / total
    return bool(weights[token] / total >= min(TYPICAL_EPSILON, TYPICAL_DELTA * np.exp(-entropy)))


def accept(candidates: Sequence[int], pick: Callable[[int], int], *, bonus: bool = True) -> list[int]:
    """The output of a step: `pick(i)` is the target's token at the i-th position from the head on.

    Row i was computed behind candidates[:i], so it says something only while all of those were picked: stop at the
    first difference. Returns between 1 and len(candidates) + 1 tokens; all but the last are accepted candidates.
    Without `bonus` no token follows a run of candidates that were all accepted: then all may be, or there are none.
    """
    tokens: list[int] = []
    for i in range(len(candidates) + bonus):
        tokens.append(pick(i))
        if i == len(candidates) or tokens[i] != candidates[i]:
            break
    return tokens
