"""`bench capacity`: what one replica carries under each policy as load rises. Simulated, and labelled so.

Targets, hardware and load are the fixed inputs of app/plan/hardware.toml; streams arrive by Poisson and decode only
(their prompts are prefilled elsewhere). The KV cache is taken to be large enough: how many streams the cards' memory
really holds stands beside the result.

Goodput under an SLO counts the tokens of the streams whose ITL met it. A policy's capacity is the most goodput that it
reaches at any load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.engine.scheduler import Capacity
from app.plan.hardware import Load, Roofline, fixed_load, roofline
from app.plan.offered import POLICIES, Streams, offered
from app.plan.simulate import Cluster, Outcome
from bench.report import Report, machine
from edge.protocol.latency import best_draft_length

TARGETS = {
    "llama_70b_bf16": (500, 1000, 1400, 1600, 1800, 2200, 2600, 3000, 3400, 3800, 4200),
    "llama_8b_bf16": (1000, 2500, 4000, 5500, 7000, 8500),
}
"""Offered loads, tokens/s, up to where the cards are full."""
SPECEDGE = "a100", "qwen3_14b_bf16", 0.01407, (200, 400, 600, 800, 1000, 1300, 1600, 2000)
"""Hardware, target, mean round trip and loads of the comparison with arXiv 2505.17052."""
_LEAST_STREAMS = 300
"""So that the few that begin in one policy's time and end in another's hardly show."""
COLUMNS = ("policy", "load", "itl_p50_ms", "itl_p99_ms", "throughput_tok_s", "steps_per_token", "wasted_per_token")


@dataclass(frozen=True, slots=True)
class Sweep:
    target: str
    roof: Roofline
    load: Load
    loads: Sequence[float]
    measured_s: float
    """Streams that end in this time count, while others keep coming; those before warm the replica up. Longer at loads
    that would give fewer than `_LEAST_STREAMS`.
    """

    @property
    def warm_s(self) -> float:
        return 2 * self.load.output_tokens * self.roof.single_s

    @property
    def slos(self) -> tuple[float, ...]:
        return self.load.slo_times_single_stream_step

    def run(self, policy: str, load: float, seed: int) -> dict[str, Any]:
        given = self.load
        measured_s = max(self.measured_s, _LEAST_STREAMS * given.output_tokens / load)
        streams = Streams(
            policy=policy,
            tokens=given.output_tokens,
            draft_s=given.edge_draft_s_per_token,
            alpha=given.alpha,
            rtt_s=given.rtt_s,
            jitter_s=given.rtt_jitter_s,
            draft_length=max(
                1,
                best_draft_length(
                    given.alpha, t_d=given.edge_draft_s_per_token, t_v=self.roof.single_s, rtt=given.rtt_s
                ),
            ),
        )
        rate = load / given.output_tokens
        arrivals = offered(streams, rate, self.warm_s + measured_s, seed)
        outcomes = Cluster(1, room(), self.roof, seed=seed).run(arrivals)
        until = self.warm_s + measured_s
        counted = [outcome for outcome in outcomes if self.warm_s <= outcome.ended <= until]
        return {"target": self.target, "policy": policy, "load": load, **self._figures(counted, measured_s)}

    def _figures(self, counted: Sequence[Outcome], measured_s: float) -> dict[str, Any]:
        tokens = self.load.output_tokens
        itls = sorted(outcome.itl_s for outcome in counted)
        found: dict[str, Any] = {
            "itl_p50_ms": percentile(itls, 0.50) * 1e3,
            "itl_p99_ms": percentile(itls, 0.99) * 1e3,
            "throughput_tok_s": tokens * len(itls) / measured_s,
            "steps_per_token": sum(outcome.steps for outcome in counted) / (tokens * len(itls)),
            "wasted_per_token": sum(outcome.wasted for outcome in counted) / (tokens * len(itls)),
        }
        for slo in self.slos:
            met = sum(itl <= slo * self.roof.single_s for itl in itls)
            found[goodput(slo)] = tokens * met / measured_s
        found["goodput_tok_s"] = found[goodput(self.slos[0])]
        return found


def goodput(slo: float) -> str:
    return f"goodput_at_{slo:g}"


def room() -> Capacity:
    """More than the loads need, so that the step's time binds and no limit of ours."""
    return Capacity(sequences=512, context=4096, kv_tokens=512 * 4096, step_tokens=8192, draft_tokens=16)


def percentile(ordered: Sequence[float], share: float) -> float:
    """By nearest rank. `ordered` ascends and isn't empty."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ratios(rows: Sequence[dict[str, Any]], slos: Sequence[float]) -> dict[str, float]:
    """For each SLO, auto's capacity over cloud-only's."""

    def best(policy: str, slo: float) -> float:
        return max(float(row[goodput(slo)]) for row in rows if row["policy"] == policy)

    return {f"{slo:g}": best("auto", slo) / best("cloud", slo) for slo in slos}


def envelope(rows: Sequence[dict[str, Any]]) -> float:
    """The least of auto's throughput over the best fixed policy's, over all loads."""
    worst = math.inf
    for load in {row["load"] for row in rows}:
        at = {row["policy"]: float(row["throughput_tok_s"]) for row in rows if row["load"] == load}
        worst = min(worst, at["auto"] / max(rate for policy, rate in at.items() if policy != "auto"))
    return worst


def latency_envelope(rows: Sequence[dict[str, Any]]) -> float:
    """The least of the best fixed policy's median ITL over auto's, over all loads."""
    worst = math.inf
    for load in {row["load"] for row in rows}:
        at = {row["policy"]: float(row["itl_p50_ms"]) for row in rows if row["load"] == load}
        worst = min(worst, min(itl for policy, itl in at.items() if policy != "auto") / at["auto"])
    return worst


def sweep(made: Sweep, seed: int, advance: Callable[[], None]) -> list[dict[str, Any]]:
    rows = []
    for load in made.loads:
        for policy in POLICIES:
            rows.append(made.run(policy, load, seed))
            advance()
    return rows


def command(report: Report, measured_s: float, seed: int) -> None:
    load = fixed_load()
    made = [
        Sweep(name, roofline("h100", name, load.context_tokens), load, loads, measured_s)
        for name, loads in TARGETS.items()
    ]
    hardware, target, rtt_s, loads = SPECEDGE
    near = Load(**{**{name: getattr(load, name) for name in Load.__slots__}, "rtt_s": rtt_s})
    made.append(Sweep(target, roofline(hardware, target, load.context_tokens), near, loads, measured_s))
    results: dict[str, list[dict[str, Any]]] = {}
    with report.progress() as progress:
        task = progress.add_task("simulating", total=len(POLICIES) * sum(len(one.loads) for one in made))
        for one in made:
            results[one.target] = sweep(one, seed, lambda: progress.advance(task))
    for one in made:
        rows = results[one.target]
        columns = (*COLUMNS, *(goodput(slo) for slo in one.slos))
        report.table(f"simulated: {one.target}, single-stream step {one.roof.single_s * 1e3:.1f} ms", rows, columns)
        report.say(
            f"auto over cloud-only by SLO {ratios(rows, one.slos)}; auto over the best fixed policy: throughput "
            f"{envelope(rows):.3f}, median ITL {latency_envelope(rows):.3f}; the cards' memory beside the weights "
            f"holds {one.roof.streams} streams of {load.context_tokens} tokens"
        )
    first = made[0]
    report.result(
        {
            "simulated": True,
            "rows": [row for rows in results.values() for row in rows],
            "capacity_ratio_auto_vs_cloud": ratios(results[first.target], first.slos)[f"{first.slos[0]:g}"],
            "capacity_ratios": {one.target: ratios(results[one.target], one.slos) for one in made},
            "auto_over_envelope": {one.target: envelope(results[one.target]) for one in made},
            "auto_itl_over_envelope": {one.target: latency_envelope(results[one.target]) for one in made},
            "streams_in_memory": {one.target: one.roof.streams for one in made},
            "machine": machine(),
        }
    )
