"""How far ahead to draft, and in what portions, from what was measured. Pure; all times in seconds.

Window. A token drafted now is answered after R + t_v: it travels, waits for a step, and the commit travels back.
Meanwhile the drafter makes (R + t_v) / t_d more, and the cloud can use them all, so that many must be allowed in
flight; and the t_v / t_d of one step on top, since commits come in step-sized lots. Beyond that a draft can't arrive
any sooner than it is needed. Nor is it worth drafting what will hardly survive: a token k deep is right only if all
before it were, α^k, and one that isn't costs energy and uplink. Where the drafter says how sure it is of each token,
edge/confidence.py watches the tail itself, and α says nothing here. LEAST_SURVIVAL: simulated (t_d 10 ms, t_v 30 ms, α
.5 to .9, R 20 to 200 ms), stopping at 10% costs at most 1% of the ITL and saves up to a quarter of the wasted drafts;
at 20% it costs up to 4%, at 40% up to 14%.

Block. One token a frame: the cloud steps when it steps, and what waits here for company may miss the step. Drafts that
are ready together travel together anyway, for the writer takes all that is there. Only `sync` sends whole rounds.

Turn. Tokens that the worker thread hands over at a time: one, unless the drafter is so fast that this costs more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from edge.protocol.frames import Policy

LEAST_SURVIVAL: Final = 0.1
"""Default: a token whose chance of becoming output is lower isn't drafted."""
_LEAST_RATE: Final = 0.1
"""α is never taken to be lower: then a token is still drafted, and we notice when it rises."""
_VISIT_S: Final = 0.001
"""Proposals are gathered for about this long before the event loop hears of them."""
_MOST_PER_TURN: Final = 16
_LEAST_S: Final = 1e-6
_UNMEASURED_WINDOW: Final = 16
_SYNC_LENGTH: Final = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """In tokens."""

    window: int
    """Drafted past the head at most."""
    block: int
    turn: int


@dataclass(frozen=True, slots=True)
class Measured:
    """None: not measured yet."""

    rtt_s: float | None = None
    draft_s: float | None = None
    """t_d: drafting one token."""
    step_s: float | None = None
    """t_v: one step of the target."""
    acceptance_rate: float | None = None
    """α: drafts that agreed / drafts compared. None as well where each draft's own survival is watched."""


def pace(
    measured: Measured,
    policy: Policy,
    *,
    bound: int,
    draft_length: int | None = None,
    least_survival: float = LEAST_SURVIVAL,
) -> Pace:
    """`bound`: tokens that may be held past the head at all. `draft_length`: γ of `sync`, tokens a round."""
    if policy == "sync":
        length = max(1, min(bound, draft_length or _SYNC_LENGTH))
        return Pace(length, length, min(length, _turn(measured.draft_s)))
    window = _in_flight(measured)
    if measured.acceptance_rate is not None:
        window = min(window, _surviving(measured.acceptance_rate, least_survival))
    window = max(1, min(bound, window))
    return Pace(window, 1, min(window, _turn(measured.draft_s)))


def _in_flight(measured: Measured) -> int:
    if measured.rtt_s is None or measured.step_s is None or not measured.draft_s:
        return _UNMEASURED_WINDOW
    draft_s = max(measured.draft_s, _LEAST_S)
    return math.ceil((measured.rtt_s + measured.step_s) / draft_s) + math.ceil(measured.step_s / draft_s) + 1


def _surviving(rate: float, least: float) -> int:
    """The largest k, at least 1, at which rate^k is no less than `least`."""
    rate = max(rate, _LEAST_RATE)
    return max(1, int(math.log(least) / math.log(rate))) if rate < 1 and least > 0 else 1 << 30


def _turn(draft_s: float | None) -> int:
    if not draft_s:
        return 1
    return max(1, min(_MOST_PER_TURN, int(_VISIT_S / max(draft_s, _LEAST_S))))


@dataclass(slots=True)
class Average:
    """Exponentially weighted mean. `weight` is the newest sample's share."""

    weight: float = 0.2
    value: float | None = None

    def add(self, sample: float) -> None:
        self.value = sample if self.value is None else self.value + self.weight * (sample - self.value)


@dataclass(slots=True)
class AcceptanceRate:
    """α over about the last hundred comparisons, starting from a guess that few comparisons can't upset."""

    agreed: float = 6.4
    compared: float = 8.0

    def add(self, agreed: int, differed: int) -> None:
        for outcome in (*(1.0 for _ in range(agreed)), *(0.0 for _ in range(differed))):
            self.agreed = 0.99 * self.agreed + outcome
            self.compared = 0.99 * self.compared + 1.0

    @property
    def value(self) -> float:
        return self.agreed / self.compared
