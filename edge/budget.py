"""How much a device may draft: a rate in tokens a second, less on battery, nothing when it is hot. Times in seconds.

Drafts cost energy and are never needed for the text, so they are what a device saves first: without them a stream is an
ordinary cloud-only one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edge.power import Power

_BURST_S: Final = 1.0
"""A bucket holds the tokens of so long, and at least one."""
_LOOK_S: Final = 10.0
"""How often the battery and the thermometer are looked at."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """None: no limit."""

    rate: float | None = None
    """Tokens drafted a second. 0: none."""
    battery_rate: float | None = None
    """The same on battery; the lower of the two counts there."""
    celsius: float | None = None
    """Hotter than this nothing is drafted."""

    @property
    def unlimited(self) -> bool:
        return self == Allowed()

    def at(self, power: Power) -> float:
        """Tokens a second at this state of the device; math.inf without a limit."""
        if self.celsius is not None and power.celsius is not None and power.celsius > self.celsius:
            return 0.0
        rates = (self.rate, self.battery_rate if power.on_battery else None)
        return min((rate for rate in rates if rate is not None), default=math.inf)


class Budget:
    """A token bucket that all streams of a device draft from. Called on the event loop."""

    def __init__(self, allowed: Allowed, look: Callable[[], Power], clock: Callable[[], float]) -> None:
        self._allowed = allowed
        self._look = look
        self._clock = clock
        self._looked = -math.inf
        self._rate = math.inf
        self._held = 0.0
        self._filled = clock()

    def room(self) -> int:
        """How many tokens may be drafted now."""
        self._fill()
        return 1 << 30 if math.isinf(self._rate) else max(0, int(self._held))

    def spend(self, tokens: int) -> None:
        """What was drafted, wasted or not. The bucket may go below zero: a visit under way can't be called off."""
        self._fill()
        if not math.isinf(self._rate):
            self._held -= tokens

    def wait_s(self) -> float:
        """Until there may be room again."""
        if not self._rate:
            return _LOOK_S
        return min(_LOOK_S, max(0.0, (1.0 - self._held) / self._rate)) if math.isfinite(self._rate) else 0.0

    def _fill(self) -> None:
        now = self._clock()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            looks = self._allowed.battery_rate is not None or self._allowed.celsius is not None
            self._rate = self._allowed.at(self._look() if looks else Power())
        if math.isfinite(self._rate):
            most = max(1.0, self._rate * _BURST_S)
            self._held = min(most, self._held + self._rate * (now - self._filled))
        self._filled = now
