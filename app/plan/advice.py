"""What `paceline-gateway plan` answers: each policy simulated on the hardware and load that were asked about.

Two decisions are derived rather than searched: γ of `sync` is the best of the formula (edge/protocol/latency.py), and
the window is edge.pacing's, as on a real device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from app.engine.scheduler import Capacity
from app.plan.hardware import Roofline
from app.plan.offered import POLICIES, Streams, offered
from app.plan.simulate import Cluster
from edge.pacing import Measured, pace
from edge.protocol.latency import balanced_draft_length, best_draft_length

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
RTTS_S = (0.0, 0.020, 0.040, 0.080, 0.160)
_ENOUGH = 0.9
"""A policy that serves less than this share of what can be served of the load isn't recommended, however quick."""
_LEAST_STREAMS = 24
"""Streams that are simulated at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Times in seconds."""

    roof: Roofline
    load: float
    """Offered, tokens a second on one replica."""
    alpha: float
    draft_s: float
    rtt_s: float
    jitter_s: float = 0.0
    tokens: int = 256
    """Of each answer."""
    seed: int = 0

    @property
    def draft_length(self) -> int:
        """The best γ of `sync`."""
        return max(1, best_draft_length(self.alpha, t_d=self.draft_s, t_v=self.roof.single_s, rtt=self.rtt_s))

    @property
    def balanced_length(self) -> float:
        """The γ at which the paper's stages balance."""
        return balanced_draft_length(t_d=self.draft_s, t_v=self.roof.single_s, rtt=self.rtt_s)

    def window(self, policy: str) -> int:
        if policy == "cloud":
            return 0
        if policy == "sync":
            return self.draft_length
        measured = Measured(self.rtt_s, self.draft_s, self.roof.single_s, self.alpha)
        return pace(measured, "eager", bound=256).window


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one policy gives under the question's load."""

    policy: str
    window: int
    """Tokens drafted past the last commit at most."""
    batch: float
    """Streams in a step, mean."""
    itl_s: float
    itl_p99_s: float
    throughput: float
    """Tokens a second, while streams keep coming."""
    steps_per_token: float
    wasted_per_token: float


def expect(question: Question, policy: str) -> Expectation:
    streams = Streams(
        policy=policy,
        tokens=question.tokens,
        draft_s=question.draft_s,
        alpha=question.alpha,
        rtt_s=question.rtt_s,
        jitter_s=question.jitter_s,
        draft_length=question.draft_length,
    )
    rate = question.load / question.tokens
    alone_s = question.tokens * question.roof.single_s
    seconds = 2 * alone_s + max(4 * alone_s, _LEAST_STREAMS / rate)
    cluster = Cluster(1, _room(), question.roof, seed=question.seed)
    outcomes = cluster.run(offered(streams, rate, seconds, question.seed))
    # Those that end before the first arrivals could have ended, or after the last arrival, met a replica less full.
    counted = [o for o in outcomes if 2 * alone_s <= o.ended <= seconds] or outcomes
    itls = sorted(outcome.itl_s for outcome in counted)
    steps = sum(outcome.steps for outcome in outcomes)
    return Expectation(
        policy=policy,
        window=question.window(policy),
        batch=steps / max(1, cluster.replicas[0].steps),
        itl_s=median(itls),
        itl_p99_s=itls[math.ceil(0.99 * len(itls)) - 1],
        throughput=question.tokens * len(counted) / (seconds - 2 * alone_s),
        steps_per_token=fmean(outcome.steps / question.tokens for outcome in counted),
        wasted_per_token=fmean(outcome.wasted / question.tokens for outcome in counted),
    )


def expectations(question: Question, advance: Callable[[], None] = lambda: None) -> list[Expectation]:
    """Of every policy, cloud-only first."""
    found = []
    for policy in POLICIES:
        found.append(expect(question, policy))
        advance()
    return found


def recommended(found: Sequence[Expectation], load: float) -> Expectation:
    """The least median ITL among the policies that serve the load, or as much as any does; of equals the earliest."""
    served = min(load, max(expectation.throughput for expectation in found))
    return min((e for e in found if e.throughput >= _ENOUGH * served), key=lambda e: e.itl_s)


def where_it_pays(question: Question, advance: Callable[[], None] = lambda: None) -> list[list[float]]:
    """Cloud-only's ITL over eager's, for each of ALPHAS a row, for each of RTTS_S a column; below 1 hybrid loses."""
    cloud = expect(question, "cloud")
    rows = []
    for alpha in ALPHAS:
        row = []
        for rtt_s in RTTS_S:
            row.append(cloud.itl_s / expect(replace(question, alpha=alpha, rtt_s=rtt_s), "eager").itl_s)
            advance()
        rows.append(row)
    return rows


def _room() -> Capacity:
    """More than a load needs, so that the step's time binds; how many streams fit is said beside it."""
    return Capacity(sequences=512, context=4096, kv_tokens=512 * 4096, step_tokens=8192, draft_tokens=16)
