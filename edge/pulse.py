"""Signs of life on a socket: pings, the round trips they measure, when it was last heard. Pure; times in seconds."""

from __future__ import annotations

from collections import deque
from typing import Final

from edge.protocol.frames import Ping

_TRIPS: Final = 8


class Pulse:
    def __init__(self) -> None:
        self.heard = 0.0
        """When anything came last; all frames are signs of life."""
        self._nonce = 0
        self._wanted: Ping | None = None
        self._pinged: tuple[int, float] = (0, 0.0)
        self._trips: deque[float] = deque(maxlen=_TRIPS)

    @property
    def rtt_s(self) -> float | None:
        """The least of the last round trips, as queueing only ever adds. None before the first answer."""
        return min(self._trips, default=None)

    def ask(self) -> None:
        """A ping is wanted, with the next message."""
        self._nonce += 1
        self._wanted = Ping(self._nonce)

    def take(self, now: float) -> Ping | None:
        """The ping that is wanted, which leaves now."""
        ping, self._wanted = self._wanted, None
        if ping is not None:
            self._pinged = (ping.nonce, now)
        return ping

    def answered(self, nonce: int) -> None:
        """A pong has just been heard. One to an earlier ping says nothing."""
        asked, at = self._pinged
        if nonce == asked:
            self._trips.append(self.heard - at)
