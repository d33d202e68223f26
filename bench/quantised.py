"""What `bench quant` makes of its readings: a row for each width, and a sentence about the paper's claim. Pure.

The paper (Lin, 2026) says that a draft in W4A16 keeps α high, and that fewer bits don't.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.bootstrap import ratio_interval
from edge.evaluate import LENGTH, mean_run
from edge.protocol.latency import expected_accepted

COLUMNS: Final = {
    "base": "base",
    "test": "a test",
    "weights": "weights",
    "weight_bits": "bits a weight",
    "activation_bits": "activations, bits",
    "by": "by",
    "perplexity": "perplexity",
    "over_base": "/ base",
    "alpha": "α",
    "alpha_low": "from",
    "alpha_high": "to",
    "overlap": "overlap",
    "expected_accepted": "E[A] of 8",
    "expected_accepted_formula": "by formula",
    "tokens_per_s": "tokens/s",
    "mib": "MiB",
}
HIGH: Final = 0.9
"""From which α counts as high."""
_NOT_A_TEST: Final = "no: base was 4-bit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one draft said along the text and behind the target's answers."""

    base: str
    never_4_bit: bool
    """The base's weights were never in so few bits: only then it shows what they cost."""
    weights: str
    weight_bits: float
    """Per weight, all of the model's together, scales included."""
    activation_bits: int
    by: str
    perplexity: float
    overlap: float
    agreed: Sequence[Sequence[bool]]
    """Of each answer: where the draft's likeliest token is the target's next."""
    bytes: int
    tokens_per_s: float | None = None


def row(reading: Reading, base: Reading) -> dict[str, Any]:
    """`base`: the target itself, or the model that the widths are made of."""
    right = [sum(places) for places in reading.agreed]
    places = [len(places) for places in reading.agreed]
    alpha = sum(right) / sum(places)
    low, high = ratio_interval(right, places)
    return {
        "base": reading.base,
        "test": "yes" if reading.never_4_bit else _NOT_A_TEST,
        "weights": reading.weights,
        "weight_bits": reading.weight_bits,
        "activation_bits": reading.activation_bits,
        "by": reading.by,
        "perplexity": reading.perplexity,
        "over_base": reading.perplexity / base.perplexity,
        "alpha": alpha,
        "alpha_low": low,
        "alpha_high": high,
        "overlap": reading.overlap,
        "expected_accepted": mean_run(reading.agreed),
        "expected_accepted_formula": expected_accepted(alpha, LENGTH),
        "tokens_per_s": reading.tokens_per_s,
        "mib": reading.bytes / 2**20,
        "places": sum(places),
    }


def claim(w4a16: Mapping[str, Any], fewer: Sequence[Mapping[str, Any]]) -> tuple[bool, str]:
    """Whether both halves of the claim held, and a sentence. `fewer`: rows of fewer bits, activations in 16 as well."""
    kept = w4a16["alpha"] >= HIGH
    parts = [f"{_said(w4a16)} {'is' if kept else 'is not'} high ({HIGH} or more)"]
    for row in fewer:
        if row["alpha_high"] < HIGH:
            how = "is not"
        elif row["alpha_high"] < w4a16["alpha_low"]:
            how = "is clearly lower, yet still high"
        else:
            how = "is not clearly lower"
        parts.append(f"{_said(row)} {how}")
    lost = [row["alpha_high"] < HIGH for row in fewer]
    held = kept and all(lost)
    word = "holds" if held else "holds in part" if kept and any(lost) else "doesn't hold"
    return held, f"The claim {word}: α of {'; of '.join(parts)}."


def _said(row: Mapping[str, Any]) -> str:
    return f"{row['weights']}, {row['alpha']:.3f} ({row['alpha_low']:.3f} to {row['alpha_high']:.3f}),"
