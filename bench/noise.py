"""How much a row of logits moves when the same context is computed in batches of other shapes.

Floating-point sums depend on their order, and kernels sum in another order (or round otherwise) for one token than for
eight. So the same prefix gives slightly different logits alone, behind drafts, and among other streams. A token that
the noise decides is a tie: no implementation can promise it, and a comparison must tell it from a fault. So the noise
is measured first, on the engine's own settings, over all shapes that the engine makes.

The error of a row is half the range of (logits − reference logits) over the reference's `LEADERS` largest: the smallest
eps such that every difference of two of them is off by at most 2·eps. A shift of all logits together decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from app.engine.model import Model, Run

LEADERS = 256
DRAFTS = (1, 3, 7)
Rows = list[NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Sample:
    """A context to compute: `output` follows `prompt`; a row is wanted in front of each of its tokens."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]


@dataclass(slots=True)
class Noise:
    """Errors of rows, in the logits' own units, by shape of the batch."""

    errors: dict[str, list[float]] = field(default_factory=dict)

    @property
    def largest(self) -> float:
        return max((max(errors) for errors in self.errors.values() if errors), default=0.0)

    @property
    def rows(self) -> int:
        return sum(map(len, self.errors.values()))

    def summary(self) -> list[Mapping[str, float | int | str]]:
        return [
            {
                "shape": shape,
                "rows": len(errors),
                "median": float(np.median(errors)),
                "p99": float(np.quantile(errors, 0.99)),
                "largest": max(errors),
            }
            for shape, errors in self.errors.items()
        ]


def _note_last_rows(model: Model, samples: Sequence[Sample], references: Sequence[Rows], noise: Noise) -> None:
    """A prompt's last row: computed among many tokens, but the only one that is wanted, which is a shape of its own."""
    errors = noise.errors.setdefault("last of a prompt", [])
    for sample, reference in zip(samples, references, strict=True):
        for at in range(0, len(sample.output), 8):
            row = prefix_row(model, Sample(sample.prompt, sample.output[:at]))
            errors.append(row_error(row, reference[at]))


def row_error(row: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """The error of one row against the reference, both of shape (V,)."""
    count = min(LEADERS, len(reference))
    leaders = np.argpartition(reference, len(reference) - count)[-count:]
    moved = row[leaders].astype(np.float64) - reference[leaders]
    return float(np.ptp(moved)) / 2


def alone(model: Model, sample: Sample, tokens: int, *, prefill: int = 64) -> Rows:
    """Rows of one sequence computed `tokens` at a time behind its prompt."""
    return together(model, [sample], tokens, prefill=prefill)[0]


def together(model: Model, samples: Sequence[Sample], tokens: int, *, prefill: int = 64) -> list[Rows]:
    """Rows of several sequences, stepped together, each by `tokens` tokens a step."""
    return _stepped(model, samples, lambda: tokens, prefill)


def ragged(model: Model, samples: Sequence[Sample], *, prefill: int = 64, seed: int = 0) -> list[Rows]:
    """Rows of several sequences, stepped together, each step by another number of tokens for each: as drafts come."""
    rng = np.random.default_rng(seed)
    return _stepped(model, samples, lambda: int(rng.integers(1, max(DRAFTS) + 2)), prefill)


def rejected(model: Model, samples: Sequence[Sample], *, prefill: int = 64, seed: int = 0) -> list[Rows]:
    """The same with wrong drafts behind the right ones, which are computed and forgotten: what comes next then lies in
    their cells of the cache, and attention adds it up in another order.
    """
    rng = np.random.default_rng(seed)

    def width() -> int:
        return int(rng.integers(1, max(DRAFTS) + 2))

    return _stepped(model, samples, width, prefill, wrong=lambda: int(rng.integers(0, max(DRAFTS) + 1)))


def _stepped(
    model: Model,
    samples: Sequence[Sample],
    width: Callable[[], int],
    prefill: int,
    wrong: Callable[[], int] = lambda: 0,
) -> list[Rows]:
    rows: list[Rows] = [[] for _ in samples]
    for sequence, sample in enumerate(samples):
        model.begin(sequence, sample.prompt, 0)
        rows[sequence].append(_prefill(model, sequence, sample.prompt, prefill))
    ends = [len(sample.output) - 1 for sample in samples]
    at = [0] * len(samples)
    while pieces := {
        sequence: piece
        for sequence, sample in enumerate(samples)
        if (piece := sample.output[at[sequence] : min(at[sequence] + width(), ends[sequence])])
    }:
        runs = [
            Run(sequence, len(samples[sequence].prompt) + at[sequence], (*piece, *piece[:1] * wrong()), 0)
            for sequence, piece in pieces.items()
        ]
        model.decode([replace(run, rows=len(run.tokens)) for run in runs])
        row = 0
        for run in runs:
            right = len(pieces[run.sequence])
            rows[run.sequence] += [model.logits(row + i).copy() for i in range(right)]
            row += len(run.tokens)
            at[run.sequence] += right
            if right < len(run.tokens):
                model.remove(run.sequence, run.start + right)
    return rows


def plain_row(model: Model, sample: Sample) -> NDArray[np.float32]:
    """The row of logits behind a whole sample, shape (V,), computed as the noise's reference is: token by token."""
    return alone(model, Sample(sample.prompt, (*sample.output, 0)), 1)[-1]


def prefix_row(model: Model, sample: Sample) -> NDArray[np.float32]:
    """The row of logits behind a whole sample, shape (V,), computed anew in the model's first sequence."""
    model.begin(0, sample.prompt, 0)
    return _prefill(model, 0, (*sample.prompt, *sample.output), 48)


def _prefill(model: Model, sequence: int, prompt: Sequence[int], tokens: int) -> NDArray[np.float32]:
    for at in range(0, len(prompt), tokens):
        piece = tuple(prompt[at : at + tokens])
        model.decode([Run(sequence, at, piece, int(at + tokens >= len(prompt)))])
    return model.logits(0).copy()


def measure(model: Model, samples: Sequence[Sample], advance: Callable[[], None] = lambda: None) -> Noise:
    """Compare every shape with one token at a time. The model holds at least as many sequences as there are samples."""
    noise = Noise()
    references = []
    for sample in samples:
        references.append(alone(model, sample, 1))
        advance()

    def note(shape: str, found: Sequence[Rows]) -> None:
        errors = noise.errors.setdefault(shape, [])
        for rows, reference in zip(found, references, strict=True):
            errors.extend(row_error(row, ref) for row, ref in zip(rows, reference, strict=False))
        advance()

    for drafts in DRAFTS:
        note(f"1 stream, {drafts} drafts", [alone(model, sample, drafts + 1) for sample in samples])
    note("re-prefilled", [alone(model, sample, 48, prefill=48) for sample in samples])
    _note_last_rows(model, samples, references, noise)
    if len(samples) > 1:
        note(f"{len(samples)} streams", together(model, samples, 1))
        for drafts in DRAFTS[1:]:
            note(f"{len(samples)} streams, {drafts} drafts", together(model, samples, drafts + 1))
        note(f"{len(samples)} streams, 0 to {max(DRAFTS)} drafts", ragged(model, samples))
        note(f"{len(samples)} streams, drafts rejected", rejected(model, samples))
    return noise
