"""What a seed stands for: who asks for what, on which machines, over which network, and which faults there are.

Each kind of fault is on in about a third of the seeds, so that what one hides another seed still finds (swarm testing:
Groce et al., ISSTA 2012).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from app.tenants.terms import Terms
from edge.protocol.frames import JSON, MSGPACK, Policy, Sampling
from edge.protocol.padding import Padding
from tests.sim.disk import TENANTS
from tests.sim.engines import EnginePlan
from tests.sim.network import Weather

FAULTS: Final = (
    "cut",
    "silence",
    "stall",
    "unreachable",
    "move",
    "sleep",
    "device_dies",
    "drafter_fails",
    "gateway_freezes",
    "gateway_crashes",
    "gateway_restarts",
    "engine_stalls",
    "engine_dies",
    "replica_dies",
    "replica_silent",
    "launch_fails",
    "disk_fails",
    "disk_down",
    "disk_forgets",
    "clock_jumps",
)
LENGTH: Final = 40
"""Where the scripted model ends its outputs."""
_POLICIES: Final[tuple[Policy | None, ...]] = ("eager", "eager", "hold", "auto", "sync", None)
_WORDS: Final = (1, 3, 6, 12, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...]
    policy: Policy | None
    draft: bool
    starts_s: float
    reads_s: float
    """What the reader takes for each event."""
    leaves_at: int | None
    """It cancels once it holds so many tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    tenant: str
    codec: str
    padding: Padding | None
    weather: Weather
    draft_s: float
    alpha: float
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    engine: EnginePlan
    gateways: int
    settings: dict[str, Any]
    terms: dict[str, Terms]
    devices: tuple[DevicePlan, ...]
    faults: frozenset[str]
    every_s: float
    """Mean time between two faults of a kind."""
    horizon_s: float
    """Then all is healed."""


def draw(seed: int) -> Plan:
    random = Random(f"plan {seed}")
    prompts = random.sample(range(64), 12)
    engine = _engine(random)
    devices = tuple(_device(random, prompts) for _ in range(random.randint(1, 4)))
    return Plan(
        seed=seed,
        engine=engine,
        gateways=random.choice((1, 1, 2)),
        settings=_settings(random),
        terms={tenant: _terms(random) for tenant in TENANTS},
        devices=devices,
        faults=frozenset(fault for fault in FAULTS if random.random() < 0.3),
        every_s=random.choice((0.5, 1.0, 3.0)),
        horizon_s=random.choice((1.0, 3.0, 8.0)),
    )


def _engine(random: Random) -> EnginePlan:
    streams, context = random.randint(1, 5), 128
    return EnginePlan(
        step_s=random.choice((0.005, 0.02, 0.04)),
        token_s=random.choice((0.0002, 0.001, 0.004)),
        streams=streams,
        context=context,
        queue=random.randint(1, 8),
        queue_s=random.choice((float("inf"), 10.0, 1.0)),
        window=random.choice((1, 4, 16, 32)),
        draft_tokens=random.randint(1, 8),
        kv_tokens=random.choice((streams * context, context, context + context // 2)),
        reserve_tokens=random.choice((None, None, 16, 4)),
        tenant_kv=random.choice((1.0, 1.0, 0.5)),
        replicas=random.choice((0, 0, 1, 2, 3)),
        silence_s=3.0,
        homeless_s=random.choice((5.0, 30.0)),
        mail_s=random.choice(((0.0, 0.001), (0.001, 0.02))),
    )


def _settings(random: Random) -> dict[str, Any]:
    return {
        "grace_s": random.choice((0.5, 3.0, 15.0)),
        "hello_s": 5.0,
        "idle_s": random.choice((3.0, 30.0)),
        "usage_flush_s": random.choice((0.5, 2.0)),
        "key_cache_s": random.choice((0.0, 5.0)),
        "tenant_streams": random.choice((3, 512, 512)),
        "socket_streams": random.choice((2, 64, 64)),
        "draft_tokens": random.choice((4, 64)),
        "default_policy": random.choice(("eager", "auto")),
        "hold_ms": random.choice((0.0, 100.0, 1000.0)),
    }


def _terms(random: Random) -> Terms:
    return Terms(
        weight=random.choice((1.0, 1.0, 3.0)),
        requests_per_minute=random.choice((None, None, None, 30)),
        tokens_per_minute=random.choice((None, None, None, 600)),
        concurrent_streams=random.choice((None, None, 2)),
        draft_tokens_per_minute=random.choice((None, None, 100)),
    )


def _device(random: Random, prompts: list[int]) -> DevicePlan:
    least = random.choice((0.0, 0.01, 0.05, 0.15))
    return DevicePlan(
        tenant=random.choice(TENANTS),
        codec=random.choice((MSGPACK, MSGPACK, JSON)),
        padding=random.choice((None, None, None, Padding(size=256, tick_ms=20))),
        weather=Weather((least, least + random.choice((0.0, 0.02, 0.2))), random.choice((300, 2000, 1 << 16))),
        draft_s=random.choice((0.002, 0.01, 0.03)),
        alpha=random.choice((0.0, 0.5, 0.8, 0.95, 1.0)),
        jobs=tuple(_job(random, prompts.pop()) for _ in range(random.randint(1, 3))),
    )


def _job(random: Random, prompt: int) -> Job:
    greedy = random.random() < 0.7
    return Job(
        prompt=(prompt, *range(100, 100 + random.choice(_WORDS))),
        sampling=Sampling(temperature=0) if greedy else Sampling(temperature=0.8, top_p=0.9, seed=prompt),
        max_tokens=random.choice((1, 8, 20, 32, 48)),
        stop=random.choice(((), (), (), ("e",), ("th", "zq"))),
        policy=random.choice(_POLICIES),
        draft=random.random() < 0.85,
        starts_s=random.choice((0.0, 0.0, random.uniform(0, 2))),
        reads_s=random.choice((0.0, 0.0, 0.0, 0.1)),
        leaves_at=random.choice((None, None, None, None, None, random.randint(0, 20))),
    )
