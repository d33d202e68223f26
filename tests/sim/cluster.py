"""Gateways as processes: they start, stop, crash and come back, behind one address and on one database."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr
from pydantic_settings import SettingsConfigDict
from sqlalchemy.exc import SQLAlchemyError
from starlette.websockets import WebSocket

from app.api.deps import Gateway
from app.api.verify import verify
from app.config import Settings
from app.engine.generation import Generation
from app.engine.pool import Pool
from app.main import StartError, build, running
from app.tenants.terms import TenantId
from edge.dial import greet, refused
from edge.errors import Unreachable
from edge.protocol.frames import Codec, Hello, Usage, Welcome
from tests.sim.disk import SECRET, Migrated, shared
from tests.sim.engines import SimulatedHost
from tests.sim.loop import PROCESS, Process
from tests.sim.network import DeviceEnd, GatewayEnd, Link, Weather

if TYPE_CHECKING:
    from tests.sim.world import World

_STOP_S = 5.0
"""As in app/server.py."""
_WATCH_S = 1.0
_RESTART_S = 0.5


class SimulatedSettings(Settings):
    """Not what a developer's .env says."""

    model_config = SettingsConfigDict(env_prefix="PACELINE_SIMULATION_", env_file=None)


@lru_cache(maxsize=1)
def _settings() -> Settings:
    return SimulatedSettings(secret=SecretStr(SECRET))


class Incarnation:
    """One life of a gateway's process, and what it has counted."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.process = Process(name)
        self.gateway: Gateway | None = None
        self.state = "starting"
        self.links: list[Link] = []
        self.served: list[tuple[str, Generation]] = []
        """Every generation that was counted for a tenant's id."""
        self.closed: dict[Generation, Usage] = {}
        """What those of them had used that are over, when they were counted for the last time."""
        self.flushed: dict[str, int] = {}
        """Output tokens by tenant that the database has for sure."""
        self.orderly = False
        """It has ended with all that it had counted written."""
        self.host: SimulatedHost | None = None
        self.sessions: dict[asyncio.Task[None], None] = {}
        self.life = self.process.spawn(self._live())
        self._stop = asyncio.Event()

    async def _live(self) -> None:
        world = self.world
        engine = world.engines.build(world.loop.time)
        self.host = engine._host if isinstance(engine, Pool) else None  # type: ignore[assignment]
        settings = _settings().model_copy(update=world.plan.settings)
        gateway = build(settings, engine, Migrated(shared()), wall=world.wall)
        self._observe(gateway)
        try:
            async with running(gateway):
                self.gateway, self.state = gateway, "up"
                world.trace("up", self.process.name)
                await self._stop.wait()
                self.state = "stopping"
                gateway.drain()
                await self._hang_up()
            self.orderly = True
        except (StartError, SQLAlchemyError, sqlite3.Error) as error:  # what a process would die of
            world.trace("died", self.process.name, type(error).__name__)
            if self.host is not None:
                self.host.kill()
        finally:
            self.state = "down"

    async def _hang_up(self) -> None:
        """What uvicorn does with sockets when it stops."""
        for link in self.links:
            self.world.ends[link].close(1012)
        if self.sessions:
            await asyncio.wait(list(self.sessions), timeout=_STOP_S)
        for session in list(self.sessions):
            session.cancel()
        await asyncio.gather(*self.sessions, return_exceptions=True)

    async def stop(self) -> None:
        """SIGTERM."""
        self._stop.set()
        await asyncio.wait([self.life])

    def crash(self) -> None:
        """SIGKILL: its sockets are reset, its replicas go with it, and what it knew is gone."""
        self.world.trace("crash", self.process.name)
        self.state = "down"
        for link in self.links:
            link.cut(device_in=self.world.random.uniform(0, 0.2))
        self.process.alive = False
        if self.host is not None:
            self.host.kill()
        self.world.loop.kill(self.process)

    def broken(self) -> bool:
        """Whether an operator's health check would have it started anew."""
        if self.state == "down":
            return True
        gateway = self.gateway
        return self.state == "up" and gateway is not None and self.host is None and gateway.engine.failure() is not None

    async def serve(self, end: GatewayEnd) -> None:
        assert self.gateway is not None
        self.links.append(end.link)
        try:
            await verify(WebSocket(end.scope, end.receive, end.send), self.gateway)
        finally:
            self.links.remove(end.link)
            end.close(1006)

    def counted(self) -> dict[str, int]:
        """Output tokens made here, by tenant's id."""
        totals: dict[str, int] = {}
        for tenant, generation in self.served:
            totals[tenant] = totals.get(tenant, 0) + self.made(generation)
        return totals

    def made(self, generation: Generation) -> int:
        """Its output tokens. A step that ends after its stream was given up is nobody's."""
        return self.closed.get(generation, generation.usage()).completion - len(generation.request.committed)

    def _observe(self, gateway: Gateway) -> None:
        accounts, usage = gateway.accounts, gateway.usage
        opening, closing, flushing = accounts.open, accounts.close, usage.flush

        def opened(tenant: TenantId, generation: Generation) -> None:
            self.served.append((tenant.id, generation))
            self.world.invariants.began(generation)
            opening(tenant, generation)

        def closed(tenant_id: str, generation: Generation) -> None:
            self.closed.setdefault(generation, generation.usage())
            closing(tenant_id, generation)

        async def flush() -> None:
            counted = self.counted()
            await flushing()
            self.flushed = counted

        accounts.open, accounts.close, usage.flush = opened, closed, flush  # type: ignore[method-assign]
        gateway.streams._account = closed


class Cluster:
    """All gateways: devices reach any that is up."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lives: list[Incarnation] = []
        self.unreachable: set[Process] = set()
        """Devices that have no network."""
        self._slots: list[Incarnation | None] = [None] * world.plan.gateways
        self._links = 0

    def up(self) -> list[Incarnation]:
        return [life for life in self._slots if life is not None and life.state == "up"]

    def alive(self) -> list[Incarnation]:
        """Those that are up, and those that are about to be or about to end."""
        return [life for life in self._slots if life is not None and life.state != "down"]

    def start(self, slot: int) -> Incarnation:
        life = Incarnation(self.world, f"gateway {slot}.{len(self.lives)}")
        self.lives.append(life)
        self._slots[slot] = life
        return life

    async def watch(self, slot: int) -> None:
        """Start the gateway, and start it anew whenever it is broken: what systemd does."""
        while True:
            life = self._slots[slot]
            if life is None:
                self.start(slot)
            elif life.broken():
                if life.state == "up":
                    await life.stop()
                await asyncio.sleep(_RESTART_S)
                self._slots[slot] = None
                continue
            await asyncio.sleep(_WATCH_S)

    def dial(self, weather: Weather) -> Callable[..., Any]:
        """What a device calls to connect, over such a network."""

        async def dial(url: str, hello: Hello, codec: Codec, timeout_s: float) -> tuple[DeviceEnd, Welcome]:
            try:
                async with asyncio.timeout(timeout_s):
                    end = await self._connect(url, codec, weather)
                    try:
                        return end, await greet(end, hello, codec)  # type: ignore[arg-type]
                    except BaseException:
                        end.abort()
                        raise
            except OSError as error:
                raise Unreachable(f"no gateway at {url}: {type(error).__name__}") from error

        return dial

    async def _connect(self, url: str, codec: Codec, weather: Weather) -> DeviceEnd:
        world, device = self.world, PROCESS.get()
        assert device is not None
        await asyncio.sleep(2 * world.random.uniform(*weather.delay_s))
        if device in self.unreachable:
            await asyncio.sleep(60.0)
        up = self.up()
        if not up:
            raise ConnectionRefusedError
        life = world.random.choice(up)
        self._links += 1
        link = Link(self._links, device, life.process, weather, world.random, world.trace)
        end = world.ends[link] = GatewayEnd(link, codec.subprotocol)
        world.trace("connect", self._links, device.name, life.process.name)
        session = life.process.spawn(life.serve(end))
        life.sessions[session] = None
        session.add_done_callback(lambda done: life.sessions.pop(done, None), context=contextvars.Context())
        status = await end.answer
        if status != 101:
            raise refused(url, status, "")
        return DeviceEnd(link, codec.subprotocol)
