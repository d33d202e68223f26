"""Which path a request takes: hybrid, else cloud-only over HTTP, else this device alone. Pure; times in seconds.

A path that failed rests before it is tried again, so that not every request waits for the same timeout; the next lower
one serves meanwhile. Hysteresis: each failure in a row doubles the rest, up to `cap_s`, and one success doesn't clear
the record. It takes `_STEADY` of them, so a network that comes and goes doesn't make a device flap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Path = Literal["hybrid", "cloud", "local"]

PATHS: Final[tuple[Path, ...]] = ("hybrid", "cloud", "local")
"""From the best down."""
_STEADY: Final = 3
"""Successes in a row after which earlier failures are forgotten."""


@dataclass(slots=True)
class _Record:
    failures: int = 0
    """In a row, rests that a success interrupted included."""
    successes: int = 0
    """Since the last failure."""
    rested_at: float = 0.0
    """When it may be tried again."""


class Ladder:
    """`random_unit` gives numbers from 0 to 1: a random half of each rest is left out, lest devices come in step."""

    def __init__(
        self,
        paths: Sequence[Path],
        random_unit: Callable[[], float],
        *,
        rest_s: float = 2.0,
        cap_s: float = 120.0,
    ) -> None:
        self._records = {path: _Record() for path in PATHS if path in paths}
        self._random = random_unit
        self._rest_s = rest_s
        self._cap_s = cap_s

    def order(self, now: float) -> list[Path]:
        """The paths to try, best first: the rested ones. If none is, all: somebody has to answer."""
        rested = [path for path, record in self._records.items() if record.rested_at <= now]
        return rested or list(self._records)

    def worked(self, path: Path) -> None:
        record = self._records[path]
        record.successes += 1
        if record.successes >= _STEADY:
            record.failures = 0

    def failed(self, path: Path, now: float) -> None:
        record = self._records[path]
        rest = min(self._cap_s, self._rest_s * 2.0**record.failures)
        record.failures += 1
        record.successes = 0
        record.rested_at = now + rest * (0.5 + self._random() / 2)
