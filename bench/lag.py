"""How late the event loop is: what a callback waits past its time, because something held the loop or the interpreter.

The issue's bound for the gateway: p99 under 20 ms while the engine runs 8 streams.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Lag:
    """Samples in seconds, one per period."""

    samples: list[float] = field(default_factory=list)

    def percentile_ms(self, q: float) -> float:
        """The q-th percentile, 0 to 100; 0 without samples."""
        return float(np.percentile(self.samples, q)) * 1e3 if self.samples else 0.0


class _Probe:
    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float, lag: Lag) -> None:
        self._loop = loop
        self._period_s = period_s
        self._lag = lag
        self._arm()

    def cancel(self) -> None:
        self._timer.cancel()

    def _arm(self) -> None:
        self._due = self._loop.time() + self._period_s
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._lag.samples.append(max(0.0, self._loop.time() - self._due))
        self._arm()


@contextlib.contextmanager
def lag_probe(period_s: float = 0.005) -> Iterator[Lag]:
    """Measure the running loop for the length of the block."""
    lag = Lag()
    probe = _Probe(asyncio.get_running_loop(), period_s, lag)
    try:
        yield lag
    finally:
        probe.cancel()
