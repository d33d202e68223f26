"""Whether a device slept, or is on another network than it was: both leave sockets that are dead and don't show it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

_SLEPT_S: Final = 1.0
"""Time that passed without this process noticing, from which on the device counts as having slept."""


def uptime() -> float:
    """Seconds on a clock that runs on while the device sleeps, and that nobody sets where the system has one.

    Elsewhere it is the wall clock: if that is set forward, a socket is probed for nothing.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if clock is None else time.clock_gettime(clock)


def own_address(peer: Any) -> str | None:
    """The address from which this device would reach `peer` now; nothing is sent. None: there is no way there."""
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(peer)
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return address


class Surroundings:
    """`clock` stands still while the device sleeps; `uptime` doesn't."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        uptime: Callable[[], float] = uptime,
        own_address: Callable[[Any], str | None] = own_address,
    ) -> None:
        self._clock = clock
        self._uptime = uptime
        self._own_address = own_address
        self._peer: Any = None
        self._address: str | None = None
        self._asleep_s = 0.0

    def settle(self, peer: Any) -> None:
        """A new socket to `peer`, an address and a port: what is now counts as normal."""
        self._peer = peer
        self._address = self._own_address(peer)
        self._asleep_s = self._uptime() - self._clock()

    def changed(self) -> bool:
        """Whether the device slept or moved since the last question."""
        address, asleep_s = self._own_address(self._peer), self._uptime() - self._clock()
        changed = address != self._address or asleep_s - self._asleep_s > _SLEPT_S
        self._address, self._asleep_s = address, asleep_s
        return changed
