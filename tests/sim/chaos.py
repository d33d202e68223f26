"""The faults of a simulation: each kind strikes at drawn times until the horizon, then all is healed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

from tests.sim.cluster import Incarnation
from tests.sim.engines import SimulatedReplica
from tests.sim.network import Link

if TYPE_CHECKING:
    from tests.sim.device import Device
    from tests.sim.world import World

_KEEP_ALIVE_S = (5.0, 10.0)
"""When a gateway finds a silent socket out: uvicorn's pings."""


class Chaos:
    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(f"chaos {world.plan.seed}")
        self.healed = False
        lasting: dict[str, Callable[[bool], None]] = {
            "drafter_fails": self._drafter_fails,
            "engine_stalls": self._engine_stalls,
            "launch_fails": self._launch_fails,
            "disk_fails": self._disk_fails,
            "disk_forgets": self._disk_forgets,
        }
        self._lasting = {fault: switch for fault, switch in lasting.items() if fault in world.plan.faults}

    async def run(self) -> None:
        plan = self.world.plan
        for switch in self._lasting.values():
            switch(True)
        strikes = [getattr(self, f"_{fault}") for fault in sorted(plan.faults - self._lasting.keys())]
        tasks = [asyncio.create_task(self._strike(strike)) for strike in strikes]
        await asyncio.sleep(plan.horizon_s)
        self.healed = True
        await asyncio.gather(*tasks)
        for switch in self._lasting.values():
            switch(False)
        self.world.trace("healed")

    async def _strike(self, strike: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / self.world.plan.every_s))
            if self.healed:
                return
            self.world.trace("fault", strike.__name__)
            await strike()

    # What lasts until it is healed

    def _drafter_fails(self, on: bool) -> None:
        for device in self.world.devices:
            device.drafter.fails = 0.5 * on

    def _engine_stalls(self, on: bool) -> None:
        for clockwork in self.world.engines.live.values():
            clockwork.stall, clockwork.stall_s = 0.05 * on, 2.0
        self.world.engines.stall = 0.05 * on

    def _launch_fails(self, on: bool) -> None:
        self.world.engines.launches = 0.5 if on else 1.0

    def _disk_fails(self, on: bool) -> None:
        self.world.disk.fails = 0.1 * on

    def _disk_forgets(self, on: bool) -> None:
        self.world.disk.forgets = 0.3 * on

    # What strikes

    async def _cut(self) -> None:
        link = self._link()
        if link is not None:
            link.cut(device_in=self.random.choice((0.0, 0.1, None)), gateway_in=self.random.choice((0.0, 0.1, 2.0)))

    async def _silence(self) -> None:
        link = self._link()
        if link is not None:
            link.cut(device_in=None, gateway_in=self.random.uniform(*_KEEP_ALIVE_S))

    async def _stall(self) -> None:
        link = self._link()
        if link is not None:
            self.random.choice((link.up, link.down)).stall(self.random.uniform(0.05, 2.0))

    async def _unreachable(self) -> None:
        process, cluster = self._device().process, self.world.cluster
        cluster.unreachable.add(process)
        for link in self._links():
            if link.device is process:
                link.cut(device_in=None, gateway_in=self.random.uniform(*_KEEP_ALIVE_S))
        await asyncio.sleep(self.random.uniform(0.1, 3.0))
        cluster.unreachable.discard(process)

    async def _move(self) -> None:
        device = self._device()
        device.address += 1
        for link in self._links():
            if link.device is device.process:
                link.cut(device_in=None, gateway_in=self.random.uniform(*_KEEP_ALIVE_S))

    async def _sleep(self) -> None:
        device = self._device()
        seconds = self.random.uniform(0.5, 10.0)
        device.slept_s += seconds
        self.world.loop.freeze(device.process, self.random.choice((0.0, seconds)))

    async def _device_dies(self) -> None:
        device = self._device()
        if device.alive and sum(other.alive for other in self.world.devices) > 1:
            device.kill(gateway_in=self.random.choice((0.0, self.random.uniform(*_KEEP_ALIVE_S))))

    async def _gateway_freezes(self) -> None:
        life = self._life()
        if life is not None:
            self.world.loop.freeze(life.process, self.random.uniform(0.05, 2.0))

    async def _gateway_crashes(self) -> None:
        life = self._life()
        if life is not None:
            life.crash()

    async def _gateway_restarts(self) -> None:
        life = self._life()
        if life is not None:
            await life.stop()

    async def _engine_dies(self) -> None:
        clockworks = self.world.engines.clockworks()
        if clockworks:
            self.random.choice(clockworks).doomed = True

    async def _replica_dies(self) -> None:
        replica = self._replica()
        if replica is not None:
            replica.kill()

    async def _replica_silent(self) -> None:
        replica = self._replica()
        if replica is not None:
            self.world.loop.freeze(replica.process, self.random.uniform(0.1, 5.0))

    async def _disk_down(self) -> None:
        self.world.disk.broken = True
        await asyncio.sleep(self.random.uniform(0.1, 3.0))
        self.world.disk.broken = False

    async def _clock_jumps(self) -> None:
        self.world.wall_offset += timedelta(seconds=self.random.choice((-90_000, -1, 1, 90_000)))

    # Whom it strikes

    def _links(self) -> list[Link]:
        return [link for life in self.world.cluster.lives for link in life.links]

    def _link(self) -> Link | None:
        links = self._links()
        return self.random.choice(links) if links else None

    def _device(self) -> Device:
        return self.random.choice(self.world.devices)

    def _life(self) -> Incarnation | None:
        up = self.world.cluster.up()
        return self.random.choice(up) if up else None

    def _replica(self) -> SimulatedReplica | None:
        alive = [replica for host in self.world.engines.hosts for replica in host.alive()]
        return self.random.choice(alive) if alive else None
