"""What a network does to a connection: when each chunk of bytes comes out. Pure: clock and randomness are arguments.

The bytes belong to a TCP connection, so order is kept and nothing is lost for good: what delays one chunk delays all
behind it. In the order in which it happens to a chunk:

1. Outage. Chunks sent while the link is dead wait for its end. (TCP's backed-off retransmissions would come somewhat
   later still; that is left out.)
2. Bandwidth. A chunk is transmitted behind the one before it, at the rate of its way.
3. Loss. A lost packet is sent again when the sender's probe timer fires, after two round trips (RFC 8985, section 7.2),
   doubled each time that it is lost again. Its chunk comes that much later.
4. Propagation: half the round-trip time, and jitter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from random import Random
from typing import Final, Literal

from msgspec import Struct

Way = Literal["up", "down"]
Shape = Literal["uniform", "normal", "exponential"]

SEGMENT_BYTES: Final = 1448
"""What a TCP segment carries on Ethernet with timestamps; each may be lost."""
_GAMMA_MEDIAN: Final = 1.6783469900166605
"""Of the sum of two exponentials of mean 1."""


class Link(Struct, frozen=True):
    """A network, both ways. The defaults do nothing."""

    rtt_s: float = 0.0
    jitter_s: float = 0.0
    """Of each way. uniform: at most this much more or less; normal: its standard deviation; exponential: the mean of
    what comes on top."""
    jitter: Shape = "uniform"
    up_bytes_per_s: float | None = None
    down_bytes_per_s: float | None = None
    loss: float = 0.0
    """Probability that a packet is lost, each way."""
    outage_every_s: float | None = None
    """Mean time from one outage's end to the next one's beginning. None: there are none."""
    outage_s: float = 0.0

    @property
    def median_s(self) -> float:
        """The median round trip of one small packet at a time, without loss and outages."""
        return self.rtt_s + (_GAMMA_MEDIAN * self.jitter_s if self.jitter == "exponential" else 0.0)

    def bytes_per_s(self, way: Way) -> float | None:
        return self.up_bytes_per_s if way == "up" else self.down_bytes_per_s


class Outages:
    """When a link is dead, from time `began` on: of fixed length, at times drawn from `random` as they are needed."""

    def __init__(self, link: Link, random: Random, began: float) -> None:
        self._link = link
        self._random = random
        self._known = began
        """Up to here the schedule is drawn."""
        self._starts: list[float] = []

    def over(self, now: float) -> float:
        """When the link is alive: `now`, or the end of the outage that this falls into."""
        every_s = self._link.outage_every_s
        if every_s is None:
            return now
        while self._known <= now:
            start = self._known + self._random.expovariate(1 / every_s)
            self._starts.append(start)
            self._known = start + self._link.outage_s
        before = bisect_right(self._starts, now)
        return max(now, self._starts[before - 1] + self._link.outage_s) if before else now


class Delay:
    """One way of one connection."""

    def __init__(self, link: Link, way: Way, random: Random, over: Callable[[float], float] = lambda now: now) -> None:
        """`over`: of the link's `Outages`, which both ways and all connections share."""
        self._link = link
        self._bytes_per_s = link.bytes_per_s(way)
        self._random = random
        self._over = over
        self._line_free = 0.0
        self._last = 0.0

    def due(self, now: float, size: int) -> float:
        """When a chunk of `size` bytes that is sent at `now` comes out, seconds on the same clock."""
        sent = self._over(now)
        if self._bytes_per_s is not None:
            sent = max(sent, self._line_free) + size / self._bytes_per_s
            self._line_free = sent
        arrives = sent + self._link.rtt_s / 2 + self._jitter() + self._resending(size)
        self._last = max(self._last, now, arrives)
        return self._last

    def _jitter(self) -> float:
        spread = self._link.jitter_s
        if not spread:
            return 0.0
        if self._link.jitter == "uniform":
            return self._random.uniform(-spread, spread)
        if self._link.jitter == "normal":
            return self._random.gauss(0.0, spread)
        return self._random.expovariate(1 / spread)

    def _resending(self, size: int) -> float:
        """Seconds until the last of its packets has not been lost."""
        if not self._link.loss:
            return 0.0
        packets = max(1, -(-size // SEGMENT_BYTES))
        lost = 1 - (1 - self._link.loss) ** packets
        waited, timeout = 0.0, 2 * self._link.rtt_s
        while self._random.random() < lost:
            waited += timeout
            timeout *= 2
            lost = self._link.loss
        return waited
