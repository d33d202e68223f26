"""What `bench serve` makes of its requests: `vllm bench serve`'s figures, by the same definitions. Pure.

    TTFT   from sending the request to the first text              TPOT  (end − first text) / (tokens − 1)
    ITL    between two pieces of text, over all requests           E2EL  from sending the request to the end

Goodput counts only requests that keep every service level objective that is set (DistServe, arXiv 2401.09670).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Served:
    """One request that was answered. Times in seconds on one clock."""

    sent: float
    arrivals: tuple[float, ...]
    """Of its pieces of text; at least one."""
    tokens: int

    @property
    def ttft_s(self) -> float:
        return self.arrivals[0] - self.sent

    @property
    def tpot_s(self) -> float | None:
        """None for a single token."""
        return (self.arrivals[-1] - self.arrivals[0]) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def e2el_s(self) -> float:
        return self.arrivals[-1] - self.sent

    @property
    def gaps_s(self) -> list[float]:
        return [b - a for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class Objectives:
    """Service level objectives; None: not asked for."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2el_s: float | None = None

    def kept(self, served: Served) -> bool:
        limits = ((self.ttft_s, served.ttft_s), (self.tpot_s, served.tpot_s), (self.e2el_s, served.e2el_s))
        return all(limit is None or value is None or value <= limit for limit, value in limits)


def poisson(rate: float, count: int, seed: int) -> Iterator[float]:
    """When each of `count` requests is sent, seconds from the start: `rate` a second; infinite: all at once."""
    random, at = Random(seed), 0.0  # noqa: S311 - arrivals, not a secret
    for _ in range(count):
        yield at
        at += random.expovariate(rate) if rate != float("inf") else 0.0


def summary(served: Sequence[Served], failed: int, duration_s: float, objectives: Objectives) -> Mapping[str, Any]:
    """One row. Rates are per second of `duration_s`, from the first request to the last answer's end."""
    tokens = sum(request.tokens for request in served)
    row: dict[str, Any] = {
        "completed": len(served),
        "failed": failed,
        "duration_s": duration_s,
        "requests_per_s": len(served) / duration_s,
        "goodput_per_s": sum(map(objectives.kept, served)) / duration_s,
        "tokens": tokens,
        "tokens_per_s": tokens / duration_s,
    }
    figures = {
        "ttft": [request.ttft_s for request in served],
        "tpot": [request.tpot_s for request in served if request.tpot_s is not None],
        "itl": [gap for request in served for gap in request.gaps_s],
        "e2el": [request.e2el_s for request in served],
    }
    for name, values in figures.items():
        row[f"{name}_mean_ms"] = float(np.mean(values)) * 1e3 if values else None
        for quantile in QUANTILES:
            row[f"{name}_p{quantile * 100:g}_ms"] = float(np.quantile(values, quantile)) * 1e3 if values else None
    return row
