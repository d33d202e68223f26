"""`bench schemes`: what each scheme of DESIGN §1 costs per token, beside an event simulation and the formula.

The product's own gateway and runtime, over its own WebSocket, through a delaying proxy; only the models are scripted,
so that a step takes exactly t_v and a draft token t_d. Edge and cloud have a process and a core each. Simulation and
measurement share the acceptance pattern, so what they differ by is overhead, not luck.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

from bench.events import Outcome, Times, best_sync, simulate, simulate_cloud, simulate_sync
from bench.gateway import Plan, cores, gateway, networks, pinned
from bench.report import Report
from edge.connection import Connection, Timing
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.events import Ended
from edge.protocol import latency
from edge.protocol.frames import Policy, Sampling
from edge.runtime import Generate, Runtime
from edge.script import Script, ScriptVocabulary

ALPHAS = (0.0, 0.5, 0.8, 0.9)
RTTS_MS = (0.0, 20.0, 80.0, 200.0)
COLUMNS = {
    "alpha": "α",
    "rtt_ms": "RTT",
    "cloud_ms": "cloud",
    "sync_ms": "sync",
    "sync_length": "γ",
    "hold_ms": "hold",
    "hold_sim_ms": "simulated",
    "eager_ms": "eager",
    "eager_sim_ms": "simulated ",
    "eager_formula_ms": "formula",
    "hold_steps_per_token": "hold steps/token",
    "eager_steps_per_token": "eager steps/token",
    "eager_over_sim": "eager/simulated",
    "eager_over_cloud": "eager/cloud",
}
"""Of the table for people."""


@dataclass(frozen=True, slots=True)
class Settings:
    t_d_s: float = 0.010
    t_v_s: float = 0.030
    run_s: float = 4.0
    """About how long one stream runs; decides its number of tokens."""
    repeats: int = 1
    """Streams per scheme and row, each with an acceptance pattern of its own."""

    def tokens(self, itl_s: float) -> int:
        return max(40, min(_LONGEST, int(self.run_s / itl_s)))


SCHEMES: tuple[tuple[str, Policy], ...] = (("cloud", "eager"), ("sync", "sync"), ("hold", "hold"), ("eager", "eager"))
_TIMING = Timing(ping_s=0.5)
"""So that the round trip is known before the first row is over."""
_LONGEST = 240
"""Tokens of a stream, at most."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One acceptance rate at one round-trip time."""

    alpha: float
    rtt_ms: float
    settings: Settings
    socket: Connection
    script: Script

    async def measure(self, seed: int) -> dict[str, float]:
        """All schemes, one after the other: seconds and steps per token, measured and simulated."""
        right = right_with(self.alpha, seed)
        pattern = [right(position) for position in range(_LONGEST)]
        # The proxy's own delay is a part of the network that is simulated.
        rtt_s = max(self.rtt_ms / 1e3, self.socket.rtt_s or 0.0)
        times = Times(self.settings.t_d_s, self.settings.t_v_s, rtt_s)
        length, _ = best_sync(pattern, times)
        found: dict[str, float] = {"sync_length": length, "rtt": rtt_s}
        for scheme, policy in SCHEMES:
            tokens = self.settings.tokens(_simulated(scheme, pattern, times, length).itl_s)
            drafter = ScriptedDrafter(self.script, right, draft_s=self.settings.t_d_s)
            found |= await self._run(scheme, policy, tokens, drafter, length)
            found[f"{scheme}_sim"] = _simulated(scheme, pattern[:tokens], times, length).itl_s
            if scheme == "eager":
                found["eager_abandon_sim"] = simulate(pattern[:tokens], times, "eager", abandon=True).itl_s
        return found

    async def _run(
        self, scheme: str, policy: Policy, tokens: int, drafter: ScriptedDrafter, length: int
    ) -> dict[str, float]:
        request = Generate(
            prompt=tuple(self.script.vocabulary.encode("what is a paceline?")),
            sampling=Sampling(temperature=0, seed=0),
            max_tokens=tokens,
            policy=policy,
            draft=scheme != "cloud",
            draft_length=length,
        )
        async with Runtime(self.socket, drafter) as runtime:
            async for event in runtime.generate(request):
                if isinstance(event, Ended):
                    figures = event.figures
        if figures.itl_s is None or figures.steps_per_token is None or figures.tokens != tokens:
            raise RuntimeError(f"{scheme}: {figures.tokens} of {tokens} tokens came")
        return {scheme: figures.itl_s, f"{scheme}_steps": figures.steps_per_token}


def _simulated(scheme: str, pattern: Sequence[bool], times: Times, length: int) -> Outcome:
    if scheme == "cloud":
        return simulate_cloud(pattern, times)
    if scheme == "sync":
        return simulate_sync(pattern, times, length)
    return simulate(pattern, times, "hold" if scheme == "hold" else "eager")


def row(cell: Cell, measured: Sequence[dict[str, float]]) -> dict[str, Any]:
    """A row of the result, ms per token; means over the repeats."""
    mean = {key: sum(m[key] for m in measured) / len(measured) for key in measured[0]}
    t_d, t_v = cell.settings.t_d_s, cell.settings.t_v_s
    formula = latency.eager(cell.alpha, t_d=t_d, t_v=t_v, rtt=cell.rtt_ms / 1e3)
    return {
        "alpha": cell.alpha,
        "rtt_ms": cell.rtt_ms,
        "t_d_ms": t_d * 1e3,
        "t_v_ms": t_v * 1e3,
        "cloud_ms": mean["cloud"] * 1e3,
        "sync_ms": mean["sync"] * 1e3,
        "hold_ms": mean["hold"] * 1e3,
        "eager_ms": mean["eager"] * 1e3,
        "eager_sim_ms": mean["eager_sim"] * 1e3,
        "eager_formula_ms": formula * 1e3,
        "hold_steps_per_token": mean["hold_steps"],
        "eager_steps_per_token": mean["eager_steps"],
        "rtt_measured_ms": mean["rtt"] * 1e3,
        "sync_sim_ms": mean["sync_sim"] * 1e3,
        "hold_sim_ms": mean["hold_sim"] * 1e3,
        "eager_abandon_sim_ms": mean["eager_abandon_sim"] * 1e3,
        "sync_length": round(mean["sync_length"], 1),
        "eager_over_sim": mean["eager"] / mean["eager_sim"],
        "eager_over_cloud": mean["eager"] / mean["cloud"],
    }


async def run(
    settings: Settings,
    alphas: Sequence[float],
    rtts_ms: Sequence[float],
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """All rows. Repeats go over all of them in turn, so that a slow moment of the machine hits no row alone."""
    script = Script(ScriptVocabulary())
    edge_core, cloud_core = cores()
    measured: dict[Cell, list[dict[str, float]]] = {}
    async with AsyncExitStack() as stack:
        plan = Plan(engine="scripted", step_s=settings.t_v_s, core=cloud_core)
        address = await stack.enter_async_context(gateway(plan))
        ports = await stack.enter_async_context(networks(address.port, list(rtts_ms)))
        # Not before: a child begins where its parent is.
        stack.enter_context(pinned(edge_core))
        sockets = {
            rtt: await stack.enter_async_context(
                Connection(f"http://127.0.0.1:{port}", key=address.key, timing=_TIMING)
            )
            for rtt, port in ports.items()
        }
        for repeat in range(settings.repeats):
            for alpha, rtt in product(alphas, rtts_ms):
                cell = Cell(alpha, rtt, settings, sockets[rtt], script)
                measured.setdefault(cell, []).append(await cell.measure(repeat))
                advance()
    return [row(cell, found) for cell, found in measured.items()]


def command(report: Report, alphas: Sequence[float], rtts_ms: Sequence[float], settings: Settings) -> None:
    with report.progress() as progress:
        task = progress.add_task("rows", total=len(alphas) * len(rtts_ms) * settings.repeats)
        rows = asyncio.run(run(settings, alphas, rtts_ms, lambda: progress.advance(task)))
    report.table(
        f"ms per token; t_d {settings.t_d_s * 1e3:g} ms, t_v {settings.t_v_s * 1e3:g} ms",
        [{name: row[key] for key, name in COLUMNS.items()} for row in rows],
    )
    report.result({"rows": rows})
