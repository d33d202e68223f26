"""`bench simulator`: the simulation that capacity plans rest on, beside live runs of the same streams.

Live: the product's gateway and runtimes, over WebSocket through the delaying proxy, with scripted models, as `bench
schemes` runs them. Simulated: app/plan, given the same acceptance patterns and the step, draft and round-trip times
that were measured, as a plan for real hardware would be. So what they differ by is what the simulation leaves out: the
gateway's and the device's own work, and how much those times vary.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from app.engine.scheduler import Capacity
from app.plan.hardware import Linear
from app.plan.simulate import Arrival, Cluster
from bench.gateway import Plan, cores, gateway, networks, pinned
from bench.report import Report, machine
from edge.connection import Connection, Timing
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.events import Ended
from edge.protocol.frames import Policy, Sampling
from edge.runtime import Generate, Runtime
from edge.script import Script, ScriptVocabulary

STEP_S = 0.030
DRAFT_S = 0.010
SYNC_LENGTH = 6
COLUMNS = (
    "policy",
    "alpha",
    "rtt_ms",
    "streams",
    "step_ms",
    "draft_ms",
    "itl_live_ms",
    "itl_simulated_ms",
    "steps_live",
    "steps_simulated",
    "error",
)


@dataclass(frozen=True, slots=True)
class Setting:
    policy: str
    """A policy of the protocol, or `cloud`: without drafts."""
    alpha: float
    rtt_ms: float
    streams: int

    @property
    def wire(self) -> Policy:
        policies: dict[str, Policy] = {"sync": "sync", "hold": "hold", "auto": "auto"}
        return policies.get(self.policy, "eager")


SETTINGS = tuple(
    Setting(policy, alpha, rtt_ms, streams)
    for alpha, rtt_ms, streams in ((0.8, 20.0, 1), (0.9, 80.0, 1), (0.7, 40.0, 4))
    for policy in ("cloud", "sync", "hold", "eager")
)


@dataclass(frozen=True, slots=True)
class Means:
    """Of a setting's streams. Those of the last two that were measured; None: nothing was drafted."""

    itl_s: float
    steps_per_token: float
    step_s: float = STEP_S
    draft_s: float | None = None


class Live:
    """A running gateway and its networks, seen from devices."""

    def __init__(self, sockets: dict[float, Connection], script: Script) -> None:
        self._sockets = sockets
        self._script = script

    def rtt_s(self, setting: Setting) -> float:
        """The proxy's own delay is a part of the network."""
        return max(setting.rtt_ms / 1e3, self._sockets[setting.rtt_ms].rtt_s or 0.0)

    async def run(self, setting: Setting, tokens: int) -> Means:
        ends = await asyncio.gather(*(self._stream(setting, tokens, seed) for seed in range(setting.streams)))
        itls = [end.figures.itl_s for end in ends if end.figures.itl_s is not None]
        steps = [end.usage.steps / tokens for end in ends]
        step_s = [end.measures.step_s for end in ends if end.measures.step_s is not None]
        draft_s = [end.measures.draft_s for end in ends if end.measures.draft_s is not None]
        return Means(fmean(itls), fmean(steps), fmean(step_s), fmean(draft_s) if draft_s else None)

    async def _stream(self, setting: Setting, tokens: int, seed: int) -> Ended:
        drafter = ScriptedDrafter(self._script, right_with(setting.alpha, seed), draft_s=DRAFT_S)
        request = Generate(
            prompt=tuple(self._script.vocabulary.encode(f"stream {seed}")),
            sampling=Sampling(temperature=0, seed=0),
            max_tokens=tokens,
            policy=setting.wire,
            draft=setting.policy != "cloud",
            draft_length=SYNC_LENGTH,
        )
        async with Runtime(self._sockets[setting.rtt_ms], drafter) as runtime:
            async for event in runtime.generate(request):
                if isinstance(event, Ended):
                    return event
        raise RuntimeError(f"{setting}: the stream has no end")


def simulated(setting: Setting, tokens: int, rtt_s: float, live: Means) -> Means:
    arrivals = [
        Arrival(
            at=0.0,
            tokens=tokens,
            policy=setting.wire,
            draft_s=math.inf if live.draft_s is None else live.draft_s,
            right=right_with(setting.alpha, seed),
            rtt_s=rtt_s,
            draft_length=SYNC_LENGTH,
        )
        for seed in range(setting.streams)
    ]
    outcomes = Cluster(1, capacity(), Linear(live.step_s), window=64).run(arrivals)
    return Means(fmean(outcome.itl_s for outcome in outcomes), fmean(outcome.steps / tokens for outcome in outcomes))


def capacity() -> Capacity:
    """That of the gateway which bench/gateway.py starts."""
    return Capacity(sequences=8, context=2048, kv_tokens=8 * 2048, step_tokens=1024, draft_tokens=64)


def row(setting: Setting, live: Means, model: Means) -> dict[str, Any]:
    errors = (model.itl_s / live.itl_s - 1, model.steps_per_token / live.steps_per_token - 1)
    return {
        "policy": setting.policy,
        "alpha": setting.alpha,
        "rtt_ms": setting.rtt_ms,
        "streams": setting.streams,
        "step_ms": live.step_s * 1e3,
        "draft_ms": None if live.draft_s is None else live.draft_s * 1e3,
        "itl_live_ms": live.itl_s * 1e3,
        "itl_simulated_ms": model.itl_s * 1e3,
        "steps_live": live.steps_per_token,
        "steps_simulated": model.steps_per_token,
        "error": max(errors, key=abs),
    }


async def run(
    settings: Sequence[Setting], tokens: int, advance: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    edge_core, cloud_core = cores()
    rows = []
    async with AsyncExitStack() as stack:
        plan = Plan(engine="scripted", step_s=STEP_S, core=cloud_core)
        address = await stack.enter_async_context(gateway(plan))
        ports = await stack.enter_async_context(networks(address.port, sorted({s.rtt_ms for s in settings})))
        stack.enter_context(pinned(edge_core))  # not before: a child begins where its parent is
        sockets = {
            rtt: await stack.enter_async_context(
                Connection(f"http://127.0.0.1:{port}", key=address.key, timing=Timing(ping_s=0.5))
            )
            for rtt, port in ports.items()
        }
        live = Live(sockets, Script(ScriptVocabulary()))
        for setting in settings:
            measured = await live.run(setting, tokens)
            rows.append(row(setting, measured, simulated(setting, tokens, live.rtt_s(setting), measured)))
            advance()
    return rows


def command(report: Report, tokens: int) -> None:
    with report.progress() as progress:
        task = progress.add_task("settings", total=len(SETTINGS))
        rows = asyncio.run(run(SETTINGS, tokens, lambda: progress.advance(task)))
    worst = max(abs(row["error"]) for row in rows)
    report.table("live and simulated; ITL in ms, target steps per token", rows, COLUMNS)
    report.say(f"worst error {worst:.1%} (of ITL or steps per token)")
    report.result({"worst_error": worst, "rows": rows, "machine": machine()})
