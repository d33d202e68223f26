"""What `bench compare` makes of its answers: one row for each case at each network. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from bench.bootstrap import ratio_interval
from bench.pair import Answer
from edge.events import Committed, Event, RolledBack
from edge.protocol import latency
from edge.protocol.frames import Policy

Drafting = Literal["none", "n-gram", "top-1", "coupled"]
BUSY: Final = "cloud, device busy"
"""Cloud-only while the device drafts for nobody: what it costs that both share one machine's memory."""
DEPTHS: Final = 8
"""Of `alpha_by_position`."""
_LONGEST: Final = 8
"""γ of `sync`, at most: what the engine checks of one stream in a step. Longer rounds would take several."""


@dataclass(frozen=True, slots=True)
class Case:
    scheme: str
    policy: Policy
    temperature: float
    drafting: Drafting


def cases(temperatures: Sequence[float]) -> list[Case]:
    """In the order in which they take turns: eager first, whose figures choose sync's γ."""
    found = []
    for t in temperatures:
        found += [
            Case("cloud", "eager", t, "none"),
            Case(BUSY, "eager", t, "none"),
            Case("cloud n-gram", "eager", t, "n-gram"),
        ]
        # At temperature 0 there is no noise to share: the two are the same.
        kinds: tuple[Drafting, ...] = ("top-1", "coupled") if t else ("top-1",)
        for drafting in kinds:
            policies: tuple[Policy, ...] = ("eager", "sync", "hold", "auto")
            found += [Case(policy, policy, t, drafting) for policy in policies]
    return found


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer and what it took."""

    answer: Answer
    edge_cpu_s: float
    cloud_cpu_s: float
    length: int | None = None
    """γ, of `sync`."""

    @property
    def span_s(self) -> float:
        """First to last token's arrival."""
        return (self.answer.ended.figures.itl_s or 0.0) * self.intervals

    @property
    def intervals(self) -> int:
        return self.answer.ended.figures.tokens - 1

    @property
    def agreed(self) -> list[bool]:
        return [same for _, same in compared(self.answer.events)]


def compared(events: Sequence[Event]) -> list[tuple[int, bool]]:
    """Of each draft token that was compared: its depth behind the last point at which drafting began anew, from 1;
    and whether it agreed."""
    found: list[tuple[int, bool]] = []
    base = differs_at = 0
    for event in events:
        if isinstance(event, RolledBack):
            if differs_at:  # it comes right behind the commit that differed
                found.append((differs_at, False))
            differs_at = 0
            continue
        differs_at = 0
        if isinstance(event, Committed):
            found += [(event.start + i - base + 1, True) for i in range(event.agreed)]
            if event.agreed < len(event.tokens):
                differs_at, base = event.start + event.agreed - base + 1, event.start + len(event.tokens)
    return found


@dataclass(frozen=True, slots=True)
class Measured:
    """Means over samples; None where nothing was counted."""

    alpha: float | None
    draft_s: float | None
    step_s: float | None
    rtt_s: float

    def best_length(self) -> int:
        """γ at which the formula has `sync` fastest, for the fairest baseline; 1 while nothing is known."""
        if self.alpha is None or self.draft_s is None or self.step_s is None:
            return 1
        times = {"t_d": self.draft_s, "t_v": self.step_s, "rtt": self.rtt_s}
        return max(1, latency.best_draft_length(self.alpha, **times, longest=_LONGEST))

    def formula_s(self, case: Case, length: float | None) -> float | None:
        """DESIGN §1's seconds per token. None for n-grams, whose drafts come in bursts or not at all."""
        if self.step_s is None or case.drafting == "n-gram":
            return None
        if case.drafting == "none":
            return latency.cloud(self.step_s)
        if self.alpha is None or self.draft_s is None:
            return None
        times = {"t_d": self.draft_s, "t_v": self.step_s, "rtt": self.rtt_s}
        if case.policy == "sync":
            return latency.synchronous(self.alpha, round(length or 1), **times)
        if case.policy == "hold":
            # The cloud waits for the first draft and checks all that has come: what is drafted during a step.
            block = min(_LONGEST, max(1, math.ceil(self.step_s / self.draft_s)))
            return latency.hold(
                self.alpha, t_d=self.draft_s, t_v=self.step_s, rtt=self.rtt_s, window=latency.LONGEST, block=block
            )
        return latency.eager(self.alpha, **times)


def measured(samples: Sequence[Sample], rtt_s: float) -> Measured:
    agreed = [same for sample in samples for same in sample.agreed]
    measures = [sample.answer.ended.measures for sample in samples]
    return Measured(
        _mean(agreed),
        _mean([m.draft_s for m in measures if m.draft_s is not None]),
        _mean([m.step_s for m in measures if m.step_s is not None]),
        rtt_s,
    )


def row(
    network: str, case: Case, samples: Sequence[Sample], cloud: Sequence[Sample], rtt_s: float
) -> Mapping[str, Any]:
    """`samples` and `cloud` (the same temperature's cloud-only stream) are paired, question by question."""
    found = measured(samples, rtt_s)
    tokens = sum(sample.answer.ended.figures.tokens for sample in samples)
    spans, intervals = [s.span_s for s in samples], [s.intervals for s in samples]
    itl_s = sum(spans) / sum(intervals)
    low, high = ratio_interval(spans, intervals)
    # Answers may differ in length, where a tie parts them: so both sides are seconds per token.
    own, reference = ([s.span_s / s.intervals for s in side] for side in (samples, cloud))
    over_low, over_high = ratio_interval(own, reference)
    gaps = [gap for sample in samples for gap in sample.answer.ended.measures.gaps_s]
    length = _mean([sample.length for sample in samples if sample.length is not None])
    formula_s = found.formula_s(case, length)
    usage = [sample.answer.ended.usage for sample in samples]
    measures = [sample.answer.ended.measures for sample in samples]
    steps = sum(u.steps for u in usage)
    return {
        "network": network,
        "temperature": case.temperature,
        "drafting": case.drafting,
        "scheme": case.scheme,
        "itl_ms": itl_s * 1e3,
        "itl_low_ms": low * 1e3,
        "itl_high_ms": high * 1e3,
        "over_cloud": sum(own) / sum(reference),
        "over_cloud_low": over_low,
        "over_cloud_high": over_high,
        "itl_p50_ms": _quantile_ms(gaps, 0.50),
        "itl_p95_ms": _quantile_ms(gaps, 0.95),
        "itl_p99_ms": _quantile_ms(gaps, 0.99),
        "ttft_ms": 1e3 * (_mean([s.answer.ended.figures.ttft_s or 0.0 for s in samples]) or 0.0),
        "tokens_per_s": 1 / itl_s,
        "alpha": found.alpha,
        "alpha_by_position": _by_position(samples),
        "gamma": length,
        "accepted_per_step": sum(u.accepted for u in usage) / steps,
        "steps_per_token": steps / tokens,
        "drafted_per_token": sum(m.drafted for m in measures) / tokens,
        "wasted_per_token": sum(m.wasted for m in measures) / tokens,
        "up_bytes_per_token": sum(m.bytes_up - m.bytes_opening for m in measures) / tokens,
        "down_bytes_per_token": sum(m.bytes_down for m in measures) / tokens,
        "edge_cpu_ms_per_token": 1e3 * sum(s.edge_cpu_s for s in samples) / tokens,
        "cloud_cpu_ms_per_token": 1e3 * sum(s.cloud_cpu_s for s in samples) / tokens,
        "t_d_ms": None if found.draft_s is None else found.draft_s * 1e3,
        "t_v_ms": None if found.step_s is None else found.step_s * 1e3,
        "rtt_ms": rtt_s * 1e3,
        "formula_ms": None if formula_s is None else formula_s * 1e3,
        "over_formula": None if formula_s is None else itl_s / formula_s,
        "answers": len(samples),
        "tokens": tokens,
        "other_text": sum(a.answer.tokens != b.answer.tokens for a, b in zip(samples, cloud, strict=True)),
    }


def beside_busy(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows, each with its ratio to the cloud-only stream beside a busy device."""
    busy = {(r["network"], r["temperature"]): r["over_cloud"] for r in rows if r["scheme"] == BUSY}
    return [{**r, "over_busy_cloud": r["over_cloud"] / busy[r["network"], r["temperature"]]} for r in rows]


def _by_position(samples: Sequence[Sample]) -> list[float | None]:
    """α at depth 1, 2, … `DEPTHS`: how often a token agreed, given that all before it had."""
    depths: list[list[bool]] = [[] for _ in range(DEPTHS)]
    for sample in samples:
        for depth, same in compared(sample.answer.events):
            if depth <= DEPTHS:
                depths[depth - 1].append(same)
    return [_mean(found) for found in depths]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _quantile_ms(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) * 1e3 if values else None
