"""What is counted while a stream runs, for its figures and for pacing."""

from __future__ import annotations

from dataclasses import dataclass, field

from edge.events import Measures
from edge.figures import Arrivals, Figures
from edge.pacing import AcceptanceRate, Average, Measured
from edge.protocol.drafting import DraftingStats
from edge.protocol.frames import Usage
from edge.stream import Traffic


class Meter:
    """`asked`: when the request was made, in seconds on the clock that all other times are from."""

    def __init__(self, asked: float) -> None:
        self.drafter_failed = False
        self.discarded = 0
        """Proposals that came out behind a context that had changed."""
        self._arrivals = Arrivals(asked)
        self._gaps: list[float] = []
        self._agreed = 0
        self._differed = 0
        self._rate = AcceptanceRate()
        self._draft = Mean()
        self._step = Mean()

    def proposed(self, count: int, seconds: float) -> None:
        """A visit to the drafter gave `count` tokens, at `seconds` each."""
        if count:
            self._draft.add(seconds, count)

    def committed(self, now: float, count: int, agreed: int, contradicted: bool, step_s: float) -> None:
        if self._arrivals.last is not None:
            self._gaps.append(now - self._arrivals.last)
        self._arrivals.arrived(now, count)
        self._agreed += agreed
        self._differed += contradicted
        self._rate.add(agreed, int(contradicted))
        if step_s:
            self._step.add(step_s)

    def measured(self, rtt_s: float | None) -> Measured:
        """What pacing goes by: the recent past. Not α: the run watches the survival of each draft."""
        return Measured(rtt_s, self._draft.recent.value, self._step.recent.value)

    @property
    def acceptance_rate(self) -> float:
        """α of the recent past."""
        return self._rate.value

    def figures(self, usage: Usage, traffic: Traffic) -> Figures:
        return self._arrivals.figures(
            steps=usage.steps,
            accepted=usage.accepted,
            agreed=self._agreed,
            compared=self._agreed + self._differed,
            bytes_up=traffic.up,
            bytes_down=traffic.down,
        )

    def measures(self, stats: DraftingStats, traffic: Traffic, rtt_s: float | None, attachments: int) -> Measures:
        tokens = self._arrivals.tokens
        drafted, wasted = stats.drafted + self.discarded, stats.rolled_back + self.discarded
        return Measures(
            gaps_s=tuple(self._gaps),
            draft_s=self._draft.mean,
            step_s=self._step.mean,
            rtt_s=rtt_s,
            drafted=drafted,
            wasted=wasted,
            drafted_per_token=drafted / tokens if tokens else None,
            wasted_per_token=wasted / tokens if tokens else None,
            bytes_up=traffic.up,
            bytes_down=traffic.down,
            bytes_opening=traffic.openings,
            attachments=attachments,
            drafter_failed=self.drafter_failed,
        )


@dataclass(slots=True)
class Mean:
    """Of all samples, and of the recent ones."""

    recent: Average = field(default_factory=Average)
    _sum: float = 0.0
    _count: int = 0

    def add(self, sample: float, weight: int = 1) -> None:
        self.recent.add(sample)
        self._sum += sample * weight
        self._count += weight

    @property
    def mean(self) -> float | None:
        return self._sum / self._count if self._count else None
