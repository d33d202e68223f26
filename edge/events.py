"""What a caller sees of a hybrid stream. Positions count output tokens; `at` is seconds on the runtime's clock.

Drafted, RolledBack    the speculative tail behind the output: for showing, never part of it
Committed              output
Ended                  the last event
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.figures import Figures
from edge.protocol.frames import Reason, TokenLogprob, Usage

Origin = Literal["accepted", "corrected", "cloud"]
"""accepted: a draft, verified in time. corrected: the target's, where a draft differed. cloud: the target's, unaided.

A draft that agreed but came too late to save a step is `cloud`."""


@dataclass(frozen=True, slots=True)
class Token:
    id: int
    origin: Origin
    text: str
    """What could be shown with this token: empty while a character or a possible stop string is incomplete."""


@dataclass(frozen=True, slots=True)
class Drafted:
    at: float
    start: int
    tokens: tuple[int, ...]
    confidences: tuple[float, ...]
    """The drafter's own probability of each, 0 to 1."""


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Drafts from position `start` on are gone."""

    at: float
    start: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    at: float
    start: int
    tokens: tuple[Token, ...]
    agreed: int
    """How many of the tokens, from the first on, equal what was drafted; at least as many as were accepted."""
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Measures:
    """Of the hybrid path, beside `Figures`. None: nothing was measured."""

    gaps_s: tuple[float, ...]
    """Between commits that brought tokens."""
    draft_s: float | None
    """t_d: mean time to draft a token."""
    step_s: float | None
    """t_v: mean time of the target steps behind the commits."""
    rtt_s: float | None
    """R: least round trip of the last pings."""
    drafted: int
    """Tokens drafted, sent or not."""
    wasted: int
    """Drafts that came to nothing, and proposals thrown away because the context had changed meanwhile."""
    drafted_per_token: float | None
    wasted_per_token: float | None
    bytes_up: int
    bytes_down: int
    bytes_opening: int
    """Of bytes_up, what opening and resuming took: the prompt, mostly."""
    attachments: int
    """Sockets that the stream was on: 1, and one more for each lost connection."""
    drafter_failed: bool


@dataclass(frozen=True, slots=True)
class Ended:
    at: float
    reason: Reason
    text: str
    """The rest of the text, that had been withheld."""
    kept_bytes: int | None
    """Where a stop string cut the text, UTF-8 bytes; None: it is whole."""
    usage: Usage
    """As the cloud counted. After a gateway was replaced: by the last one."""
    figures: Figures
    measures: Measures


Event = Drafted | RolledBack | Committed | Ended
