"""Streams to simulate: a kind of stream, and when such streams come."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from app.plan.simulate import Arrival
from edge.protocol.frames import Policy

POLICIES: Final = ("cloud", "sync", "hold", "eager", "auto")
"""What a stream can be served by: those of the protocol, and `cloud`, without drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """A kind of stream. Times in seconds."""

    policy: str
    tokens: int
    draft_s: float
    alpha: float
    """Mean acceptance rate of a draft token."""
    rtt_s: float
    jitter_s: float = 0.0
    alpha_spread: float = 0.0
    """Standard deviation of the acceptance rate among streams; 0: all have the same."""
    rtt_spread_s: float = 0.0
    """Of the round-trip time among streams."""
    draft_length: int | None = None
    tenants: int = 1

    def stream(self, at: float, rng: random.Random) -> Arrival:
        alpha = _beta(self.alpha, self.alpha_spread, rng)
        pattern = [rng.random() < alpha for _ in range(self.tokens)]
        wire: dict[str, Policy] = {"sync": "sync", "hold": "hold", "auto": "auto"}
        return Arrival(
            at=at,
            tokens=self.tokens,
            policy=wire.get(self.policy, "eager"),
            draft_s=math.inf if self.policy == "cloud" else self.draft_s,
            right=pattern.__getitem__,
            rtt_s=max(0.0, rng.gauss(self.rtt_s, self.rtt_spread_s)) if self.rtt_spread_s else self.rtt_s,
            jitter_s=self.jitter_s,
            draft_length=self.draft_length,
            tenant=f"tenant {rng.randrange(self.tenants)}",
        )


def offered(streams: Streams, rate: float, seconds: float, seed: int) -> Iterator[Arrival]:
    """Poisson arrivals, `rate` streams a second."""
    rng = random.Random(seed)  # noqa: S311  a simulation
    at = rng.expovariate(rate)
    while at < seconds:
        yield streams.stream(at, rng)
        at += rng.expovariate(rate)


def _beta(mean: float, spread: float, rng: random.Random) -> float:
    """A beta distribution's sample with this mean and standard deviation."""
    if not spread or not 0 < mean < 1:
        return mean
    size = mean * (1 - mean) / spread**2 - 1
    return rng.betavariate(mean * size, (1 - mean) * size) if size > 0 else float(rng.random() < mean)
