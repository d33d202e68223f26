"""Scripted engines that stall and die when told to, and replicas of them behind the real pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.engine.loop import StepLoop
from app.engine.place import Remote, ReplicaLost
from app.engine.pool import Pool
from app.engine.replica import Replica
from app.engine.scripted import ScriptedEngine
from edge.script import Script
from tests.sim import threads
from tests.sim.loop import Process, VirtualLoop

MODEL = "scripted"


class Died(Exception):
    """The model's own doing."""


@dataclass(eq=False)
class Clockwork:
    """What passes for time in an engine's steps, and what can go wrong in one."""

    random: Random
    stall: float = 0.0
    """Part of the steps that take `stall_s` longer."""
    stall_s: float = 0.0
    doomed: bool = False
    """The next step raises."""
    died: bool = False
    before_step: Callable[[], None] = field(default=lambda: None)

    def sleep(self, seconds: float) -> None:
        """Where the engine computes a step."""
        self.before_step()
        if self.doomed:
            self.doomed, self.died = False, True
            raise Died("on purpose")
        threads.sleep(seconds + (self.stall_s if self.random.random() < self.stall else 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    step_s: float
    token_s: float
    streams: int
    context: int
    queue: int
    queue_s: float
    window: int
    draft_tokens: int
    kv_tokens: int
    reserve_tokens: int | None
    tenant_kv: float
    replicas: int
    """0: one engine in the gateway's own process."""
    silence_s: float
    homeless_s: float
    mail_s: tuple[float, float]
    """How long mail takes to a replica; mails may overtake each other."""


class Engines:
    """Builds a gateway's engine, and knows what runs of it."""

    def __init__(self, plan: EnginePlan, script: Script, random: Random, trace: Callable[..., None]) -> None:
        self.plan = plan
        self.random = random
        self.trace = trace
        self.live: dict[ScriptedEngine, Clockwork] = {}
        self.before_step: Callable[[ScriptedEngine], None] = lambda engine: None
        self.stall = 0.0
        """Of engines that are built from now on."""
        self.launches = 1.0
        """Part of the launches of a replica that succeed."""
        self.hosts: list[SimulatedHost] = []
        self._script = script

    def build(self, clock: Callable[[], float]) -> ScriptedEngine | Pool:
        if not self.plan.replicas:
            return self.one(clock)
        host = SimulatedHost(self, clock)
        self.hosts.append(host)
        return Pool(
            host,
            lambda: nullcontext(self._script.vocabulary),
            replicas=self.plan.replicas,
            streams=self.plan.streams,
            queue=self.plan.queue,
            window=self.plan.window,
            silence_s=self.plan.silence_s,
            homeless_s=self.plan.homeless_s,
            retry_s=0.5,
            clock=clock,
        )

    def one(self, clock: Callable[[], float]) -> ScriptedEngine:
        clockwork = Clockwork(self.random, self.stall, 2.0)
        plan = self.plan
        engine = ScriptedEngine(
            model_id=MODEL,
            script=self._script,
            step_s=plan.step_s,
            token_s=plan.token_s,
            streams=plan.streams,
            context=plan.context,
            queue=plan.queue,
            queue_s=plan.queue_s,
            draft_tokens=plan.draft_tokens,
            step_tokens=plan.streams + 24,
            window=plan.window,
            clock=clock,
            sleep=clockwork.sleep,
            kv_tokens=plan.kv_tokens,
            reserve_tokens=plan.reserve_tokens,
            tenant_kv=plan.tenant_kv,
        )
        clockwork.before_step = lambda: self.before_step(engine)
        self.live[engine] = clockwork
        return engine

    def clockworks(self) -> list[Clockwork]:
        """Of the engines that run."""
        return [work for engine, work in self.live.items() if step_loop(engine) is not None]


def step_loop(engine: ScriptedEngine) -> StepLoop | None:
    """What the engine's worker thread runs, while it does."""
    thread: Any = engine._thread
    return None if thread is None else thread.target.__self__


class SimulatedHost:
    """Implements app.engine.place.Host: replicas in processes of their own, which can be killed and silenced."""

    def __init__(self, engines: Engines, clock: Callable[[], float]) -> None:
        self.replicas: list[SimulatedReplica] = []
        self.engines = engines
        self._clock = clock

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        self.kill()

    def kill(self) -> None:
        for replica in self.alive():
            replica.kill()

    def alive(self) -> list[SimulatedReplica]:
        return [replica for replica in self.replicas if replica.process.alive]

    async def launch(self, index: int) -> tuple[Remote, bytes]:
        random = self.engines.random
        await asyncio.sleep(random.uniform(0.01, 0.5))
        if random.random() >= self.engines.launches:
            raise ReplicaLost("there is no room for it")
        replica = SimulatedReplica(self.engines, self._clock, f"replica {index}.{len(self.replicas)}")
        self.replicas.append(replica)
        started = replica.process.spawn(replica.replica.start())
        try:
            await asyncio.wait([started])
        except asyncio.CancelledError:
            replica.kill()
            raise
        if started.cancelled():
            raise ReplicaLost("killed as it started")
        return replica, started.result()


class SimulatedReplica:
    """Implements app.engine.place.Remote."""

    def __init__(self, engines: Engines, clock: Callable[[], float], name: str) -> None:
        self.process = Process(name)
        self.replica = Replica(lambda: engines.one(clock))
        self._engines = engines
        self._news: asyncio.Queue[bytes | None] = asyncio.Queue()

    def post(self, data: bytes) -> None:
        self._engines.trace("mail", self.process.name, data)
        loop = asyncio.get_running_loop()
        loop.call_later(self._engines.random.uniform(*self._engines.plan.mail_s), self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        if self.process.alive:
            self.process.spawn(self.replica.post(data))

    async def news(self) -> AsyncGenerator[bytes, None]:
        telling = self.process.spawn(self._tell())
        try:
            while (data := await self._news.get()) is not None:
                yield data
            raise ReplicaLost("killed")
        finally:
            telling.cancel()

    async def _tell(self) -> None:
        last = self._engines.plan.mail_s[0]
        async for data in self.replica.news():
            await asyncio.sleep(last)
            self._engines.trace("news", self.process.name)
            self._news.put_nowait(data)

    async def stop(self) -> None:
        if self.process.alive:
            await asyncio.wait([self.process.spawn(self.replica.stop())], timeout=5.0)
        self.kill()

    def kill(self) -> None:
        if self.process.alive:
            self._engines.trace("killed", self.process.name)
            loop: VirtualLoop = asyncio.get_running_loop()  # type: ignore[assignment]
            loop.kill(self.process)
            self._news.put_nowait(None)
