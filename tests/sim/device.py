"""A device: the real connection and runtime with a scripted drafter, and a user who insists on the answer.

The user asks again where a gateway refuses or is lost, with all that was committed: so every job ends with the whole
text, whatever happened on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from edge.connection import Connection, Timing
from edge.drafters.base import Continuation
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.errors import EdgeError
from edge.events import Committed, Ended
from edge.generate import Generate
from edge.protocol.errors import Overloaded, ProtocolError
from edge.protocol.frames import Sampling
from edge.runtime import Runtime
from edge.surroundings import Surroundings
from tests.sim import threads
from tests.sim.engines import MODEL
from tests.sim.loop import Process
from tests.sim.plan import DevicePlan, Job

if TYPE_CHECKING:
    from tests.sim.world import World

_TIMING = Timing(connect_s=3.0, ping_s=1.0, silent_s=3.0, watch_s=0.5, probe_s=0.5, backoff_cap_s=1.0)
_AGAIN_S = 0.5


class FailingDrafter(ScriptedDrafter):
    """`fails`: part of the streams whose drafter breaks as it begins."""

    fails = 0.0
    random: Random

    def begin(
        self, prompt: Sequence[int], sampling: Sampling, *, committed: Sequence[int] = (), coupled: bool = True
    ) -> Any:
        continuation: Continuation = super().begin(prompt, sampling, committed=committed, coupled=coupled)
        if self.random.random() < self.fails:
            continuation.propose = _broken  # type: ignore[method-assign]
        return continuation


def _broken() -> None:
    raise RuntimeError("the drafter breaks on purpose")


class Device:
    def __init__(self, world: World, plan: DevicePlan, number: int) -> None:
        self.world = world
        self.plan = plan
        self.process = Process(f"device {number}")
        self.slept_s = 0.0
        self.address = 0
        """Which network it is in."""
        self.outputs: dict[Job, list[int]] = {job: [] for job in plan.jobs}
        self.done: dict[Job, str] = {}
        self.random = Random(f"device {world.plan.seed} {number}")
        loop = world.loop
        self.drafter = FailingDrafter(
            world.script,
            right_with(plan.alpha, seed=number),
            draft_s=plan.draft_s,
            confidence=lambda position: 0.05 + 0.9 * ((position * 7919) % 97) / 97,
            sleep=threads.sleep,
            clock=loop.time,
        )
        self.drafter.random = self.random
        self._connection: Connection | None = None
        self._runtime: Runtime | None = None
        self._connecting = asyncio.Lock()

    @property
    def alive(self) -> bool:
        return self.process.alive

    def kill(self, *, gateway_in: float) -> None:
        """The device drops off the net; the gateway finds out later."""
        for life in self.world.cluster.lives:
            for link in life.links:
                if link.device is self.process:
                    link.cut(device_in=None, gateway_in=gateway_in)
        self.world.loop.kill(self.process)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for job in self.plan.jobs:
                group.create_task(self._job(job))
        await self._leave()

    async def _job(self, job: Job) -> None:
        await asyncio.sleep(job.starts_s)
        while job not in self.done:
            try:
                await self._attempt(job)
            except Overloaded as busy:
                self.world.trace("busy", self.process.name, busy.code)
                await asyncio.sleep(min(busy.retry_after_s, 20.0) + 0.05)
            except (ProtocolError, EdgeError) as error:
                self.world.invariants.failed(self, job, error)
                await asyncio.sleep(_AGAIN_S * (0.5 + self.random.random()))

    async def _attempt(self, job: Job) -> None:
        output = self.outputs[job]
        runtime = await self._connected()
        request = Generate(
            model=MODEL,
            prompt=job.prompt,
            committed=tuple(output),
            sampling=job.sampling,
            max_tokens=job.max_tokens,
            stop=job.stop,
            policy=job.policy,
            draft=job.draft,
        )
        text: list[str] = []
        first = not output
        events = runtime.generate(request)
        try:
            async for event in events:
                if isinstance(event, Committed):
                    self.world.invariants.committed(self, job, event)
                    text.append(event.text)
                elif isinstance(event, Ended):
                    text.append(event.text)
                    self.world.invariants.ended(self, job, event, "".join(text) if first else None)
                    self.done[job] = event.reason
                if job.leaves_at is not None and len(output) >= job.leaves_at:
                    self.done.setdefault(job, "left")
                    return
                if job.reads_s:
                    await asyncio.sleep(job.reads_s)
        finally:
            await events.aclose()

    async def _connected(self) -> Runtime:
        """Raises Unreachable or ProtocolError."""
        async with self._connecting:
            if self._connection is not None and self._connection.ended:
                await self._leave()
            if self._connection is None:
                connection = self._make()
                await connection.__aenter__()
                self._connection = connection
                self._runtime = Runtime(connection, self.drafter, clock=self.world.loop.time)
            assert self._runtime is not None
            return self._runtime

    def _make(self) -> Connection:
        world, plan = self.world, self.plan
        loop = world.loop
        return Connection(
            "http://127.0.0.1:8000",
            key=world.keys[plan.tenant],
            fingerprint=world.script.vocabulary.fingerprint,
            codec=plan.codec,
            timing=_TIMING,
            clock=loop.time,
            rng=self.random,
            padding=plan.padding,
            surroundings=Surroundings(
                loop.time, uptime=lambda: loop.time() + self.slept_s, own_address=lambda peer: str(self.address)
            ),
            dial=world.cluster.dial(plan.weather),
        )

    async def _leave(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            await runtime.close()
