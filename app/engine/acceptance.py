"""How likely drafts are to survive: acceptance by stream and depth, with what is known of the drafter as the prior.

The d-th draft of a step counts only if all before it were accepted, so its chance is a product. At each depth a
stream's own record is shrunk towards that of its (drafter, tenant), which is shrunk towards `PRIOR`: a new stream of a
known drafter starts with good figures, an odd one soon has its own (Beta-binomial, empirical Bayes).

Comparisons behind the head count like those in a step: they cost the cloud nothing, so a stream whose drafts are
ignored is still known, and can come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DEPTHS = 16
"""Drafts further ahead share the last depth's record."""
PRIOR = 0.7
"""Acceptance rate of a drafter that nobody has seen yet."""
STRENGTH = 8.0
"""How many comparisons the prior is worth."""
MEMORY = 200.0
"""Comparisons at a depth after which old ones fade."""


@dataclass(slots=True)
class Record:
    """Comparisons by depth: how many there were, and how many agreed."""

    trials: list[float] = field(default_factory=lambda: [0.0] * DEPTHS)
    hits: list[float] = field(default_factory=lambda: [0.0] * DEPTHS)

    def add(self, depth: int, agreed: bool) -> None:
        depth = min(depth, DEPTHS - 1)
        fade = min(1.0, MEMORY / (self.trials[depth] + 1.0))
        self.trials[depth] = fade * (self.trials[depth] + 1.0)
        self.hits[depth] = fade * (self.hits[depth] + agreed)

    def rate(self, depth: int, prior: float) -> float:
        depth = min(depth, DEPTHS - 1)
        return (self.hits[depth] + STRENGTH * prior) / (self.trials[depth] + STRENGTH)


@dataclass(slots=True)
class Acceptance:
    """One stream's. Streams of the same drafter and tenant share `drafter`."""

    drafter: Record
    own: Record = field(default_factory=Record)

    def add(self, compared: int, agreed: int) -> None:
        """Drafts from the head on were compared up to the first difference: `agreed` in a row, and `compared` is that
        or one more.
        """
        for depth in range(compared):
            self.own.add(depth, depth < agreed)
            self.drafter.add(depth, depth < agreed)

    def add_late(self, compared: int, agreed: int) -> None:
        """Drafts that came behind the head: each was made right behind what is known to be right, depth 0."""
        for i in range(compared):
            self.own.add(0, i < agreed)
            self.drafter.add(0, i < agreed)

    def survivals(self, count: int) -> list[float]:
        """Chance that the d-th draft from the head on is accepted, for d = 1 … `count`."""
        chances: list[float] = []
        chance, prior = 1.0, PRIOR
        for depth in range(count):
            prior = self.drafter.rate(depth, prior)  # a depth without a record does as well as the one before
            chance *= self.own.rate(depth, prior)
            chances.append(chance)
        return chances


class Acceptances:
    """The records of all drafters, bounded: what was used longest ago is forgotten first."""

    def __init__(self, drafters: int = 4096) -> None:
        self._bound = drafters
        self._records: dict[tuple[str, str], Record] = {}

    def of(self, drafter: str, tenant: str) -> Acceptance:
        """A new stream's."""
        record = self._records.pop((drafter, tenant), None) or Record()
        if len(self._records) >= self._bound:
            del self._records[next(iter(self._records))]
        self._records[drafter, tenant] = record
        return Acceptance(record)
