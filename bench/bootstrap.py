"""Confidence intervals without an assumption about the distribution: the percentile bootstrap (Efron 1979)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES: Final = 2000
_TAILS: Final = (0.025, 0.975)


def ratio_interval(parts: ArrayLike, wholes: ArrayLike, *, seed: int = 0) -> tuple[float, float]:
    """95% interval of Σ parts / Σ wholes, both (n,), resampled by pairs. One pair alone gives a point."""
    part, whole = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    chosen = np.random.default_rng(seed).integers(len(part), size=(RESAMPLES, len(part)))
    low, high = np.quantile(part[chosen].sum(axis=1) / whole[chosen].sum(axis=1), _TAILS)
    return float(low), float(high)
