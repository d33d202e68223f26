"""How many drafts of which streams the next step checks. Pure.

All streams' drafts stand in one order by what each is expected to bring, its chance of survival times its tenant's
weight. Along that order, every total is tried: the best has the most expected weighted tokens per second. Trying all of
them matters, since step times are not convex: one draft may cost more than it brings while three pay
(compare "Optimizing Speculative Decoding for Serving LLMs Using Goodput", arXiv 2406.14066).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    shares: tuple[int, ...]
    """Drafts of each stream to check, from its first on."""
    value: float
    """Expected tokens of the step times weight, the streams' own tokens included."""
    seconds: float

    @property
    def rate(self) -> float:
        """Expected weighted tokens per second."""
        return self.value / self.seconds if self.seconds > 0 else float("inf")

    @property
    def drafts(self) -> int:
        return sum(self.shares)


def choose(
    gains: Sequence[Sequence[float]],
    base: float,
    seconds: Callable[[int], float],
    room: int,
    exactly: int | None = None,
) -> Budget:
    """`gains[i][d]`: weighted chance that stream i's draft d is accepted, falling in d. `base`: weighted tokens that
    the step gives without drafts. `seconds(n)`: its duration with n drafts. `room`: most drafts in all. `exactly`: try
    this total alone (or all there is, if that is less).
    """
    order = ranked(gains)[:room]
    totals = range(len(order) + 1) if exactly is None else [min(exactly, len(order))]
    values = [base]
    for gain, _ in order:
        values.append(values[-1] + gain)
    durations = {n: seconds(n) for n in totals}
    best = max(totals, key=lambda n: (values[n] / durations[n] if durations[n] > 0 else values[n], -n))
    shares = [0] * len(gains)
    for _, i in order[:best]:
        shares[i] += 1
    return Budget(tuple(shares), values[best], durations[best])


def ranked(gains: Sequence[Sequence[float]]) -> list[tuple[float, int]]:
    """(gain, stream) of all drafts, best first; of equal ones the nearer to its head, then the earlier stream."""
    drafts = [(-gain, depth, i) for i, row in enumerate(gains) for depth, gain in enumerate(row)]
    return [(-loss, i) for loss, _, i in sorted(drafts)]
