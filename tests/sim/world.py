"""One simulation, from its seed to its verdict."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import random as random_module
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Any
from unittest import mock

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

import app.engine.batching
import app.engine.inbox
import edge.worker
from app.tenants.repository import Repository
from app.tenants.service import Tenants
from tests.sim import threads
from tests.sim.chaos import Chaos
from tests.sim.cluster import Cluster
from tests.sim.device import Device
from tests.sim.disk import DISK, SECRET, TENANTS, Disk, _open, database, shared
from tests.sim.engines import Engines
from tests.sim.invariants import Invariants, MemoScript, Violated
from tests.sim.loop import VirtualLoop
from tests.sim.network import GatewayEnd, Link
from tests.sim.plan import Plan, draw

_EPOCH = datetime(2026, 1, 1, 12, tzinfo=UTC)
_MOST_TURNS = 400_000
_JOBS_S = 600.0
"""Virtual time in which all jobs must be done once all is healed."""
_IDLE_S = 60.0
"""And in which nothing of them may be left then."""


@dataclass(slots=True)
class Outcome:
    seed: int
    fault: str | None
    """What was violated; None: nothing."""
    trace: str
    """A hash of all that happened."""
    virtual_s: float
    turns: int
    events: int
    log: list[str] = field(default_factory=list)


class World:
    def __init__(self, plan: Plan, *, keep_log: bool) -> None:
        self.plan = plan
        self.random = Random(f"world {plan.seed}")
        latency = Random(f"latency {plan.seed}")
        self.loop = VirtualLoop(lambda: latency.random() * 0.0005, most_turns=_MOST_TURNS)
        self.loop.set_exception_handler(self._unhandled)
        self.main: asyncio.Task[None] | None = None
        self.faults: list[str] = []
        self.events = 0
        self.log: list[str] = []
        self._keep_log = keep_log
        self._hash = hashlib.blake2b(digest_size=16)
        self.wall_offset = timedelta()
        self.script = _script()
        self.keys = _template()[1]
        self.disk = Disk(Random(f"disk {plan.seed}"), "world", self.trace)
        self.engines = Engines(plan.engine, self.script, Random(f"engine {plan.seed}"), self.trace)
        self.invariants = Invariants(self)
        self.ends: dict[Link, GatewayEnd] = {}
        self.cluster = Cluster(self)
        self.devices: list[Device] = []

    def unwind(self) -> None:
        """Let all that still runs end, so that nothing of it reaches into the next simulation."""
        self.loop.turns = 0
        self.loop.run_until_complete(self._kill_all())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def _kill_all(self) -> None:
        for life in self.cluster.lives:
            life.crash()
        for device in self.devices:
            self.loop.kill(device.process)
        own = asyncio.current_task()
        for _ in range(20):
            tasks = [task for task in asyncio.all_tasks() if task is not own]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=0.5)

    def wall(self) -> datetime:
        """The time of day, as gateways see it."""
        return _EPOCH + timedelta(seconds=self.loop.now) + self.wall_offset

    def trace(self, *what: object) -> None:
        """An event. Its place and time are part of the seed's hash."""
        self.events += 1
        line = f"{self.loop.now:.9f} {what}"
        self._hash.update(line.encode(errors="surrogatepass"))
        if self._keep_log:
            self.log.append(line)

    def fail(self, what: str) -> None:
        """Something was violated: note it, and end the simulation."""
        self.faults.append(f"at {self.loop.now:.3f} s: {what}")
        if self.main is not None:
            self.main.cancel()

    def hash(self) -> str:
        return self._hash.hexdigest()

    async def run(self) -> None:
        DISK.set(self.disk)
        await self._set_terms()
        watches = [asyncio.create_task(self.cluster.watch(slot)) for slot in range(self.plan.gateways)]
        self.devices = [Device(self, plan, number) for number, plan in enumerate(self.plan.devices)]
        chaos = asyncio.create_task(Chaos(self).run())
        users = [device.process.spawn(device.run()) for device in self.devices]
        await chaos
        _, late = await asyncio.wait(users, timeout=_JOBS_S)
        for user in users:
            if user.done() and not user.cancelled():
                user.result()
        self.invariants.check(not late, "not done:", self._late())
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await self._empty()
        for life in self.cluster.alive():
            await life.stop()
        await asyncio.sleep(1.0)
        self._nothing_runs()
        repository = Repository(shared())
        ids = {tenant.name: tenant.id for tenant in await repository.tenants()}
        self.invariants.over([(ids[row.tenant], row.counts) for row in await repository.usage()])

    async def _set_terms(self) -> None:
        repository = Repository(shared())
        for tenant in await repository.tenants():
            await repository.set_terms(tenant.id, self.plan.terms[tenant.name])

    async def _empty(self) -> None:
        """Wait until the gateways have forgotten all streams."""
        until = self.loop.now + _IDLE_S
        lives = self.cluster.up()
        while left := [what for life in lives for what in self.invariants.left(life)]:
            self.invariants.check(self.loop.now < until, "left behind:", "; ".join(left))
            await asyncio.sleep(1.0)

    def _nothing_runs(self) -> None:
        hosts = [replica.process for host in self.engines.hosts for replica in host.replicas]
        lives = [life.process for life in self.cluster.lives]
        for process in (*lives, *hosts, *(device.process for device in self.devices)):
            left = [*process.tasks, *process.threads]
            self.invariants.check(not left, "left behind in", process, left)

    def _late(self) -> str:
        return ", ".join(
            f"{device.process} {job.prompt[0]}: {len(device.outputs[job])} of {job.max_tokens} tokens"
            for device in self.devices
            for job in device.plan.jobs
            if job not in device.done and device.alive
        )

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.fail(f"{context.get('message')}: {context.get('exception')!r}")


def simulate(seed: int, *, keep_log: bool = False) -> Outcome:
    """Run the seed. A violation is part of the outcome; only a fault of the simulation itself is raised."""
    _template()
    world = World(draw(seed), keep_log=keep_log)
    loop = world.loop
    keeper = _open(world.disk.name)  # an empty database would vanish with its last connection
    _template()[0].backup(keeper)
    fault: str | None = None
    with ExitStack() as patches:
        for patch in _platform(world):
            patches.enter_context(patch)
        asyncio.set_event_loop(None)
        try:
            world.main = loop.create_task(world.run())
            loop.run_until_complete(world.main)
        except* (AssertionError, asyncio.CancelledError) as group:
            fault = str(_first(group))
        world.main = None
        fault = world.faults[0] if world.faults else fault
        outcome = Outcome(seed, fault, world.hash(), loop.now, loop.turns, world.events, world.log)
        world.unwind()
        world.disk.close()
        keeper.close()
    return outcome


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _platform(world: World) -> list[Any]:
    """What the code under test takes from its platform without being given it."""
    urandom = Random(f"urandom {world.plan.seed}")

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            _note(world, record.name, record.getMessage(), record.exc_info)

    def capture(_: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        if method in ("error", "exception", "critical"):
            _note(world, "structlog", str(event.get("event")), event.get("exc_info"))
        raise structlog.DropEvent

    return [
        mock.patch.object(time, "monotonic", world.loop.time),
        mock.patch.object(random_module, "_urandom", urandom.randbytes),
        mock.patch.object(app.engine.batching, "threading", threads),
        mock.patch.object(app.engine.inbox, "threading", threads),
        mock.patch.object(edge.worker, "ThreadPoolExecutor", threads.Executor),
        _Logging(Handler(logging.ERROR), capture),
    ]


class _Logging:
    """All logs go to the simulation, for as long as this is entered."""

    def __init__(self, handler: logging.Handler, capture: Callable[..., Any]) -> None:
        self._handler = handler
        self._capture = capture

    def __enter__(self) -> None:
        root = logging.getLogger()
        self._handlers, self._level = root.handlers[:], root.level
        root.handlers[:] = [self._handler]
        root.setLevel(logging.ERROR)
        self._configured = structlog.get_config()
        structlog.configure(processors=[self._capture], cache_logger_on_first_use=False)

    def __exit__(self, *exception: object) -> None:
        root = logging.getLogger()
        root.handlers[:] = self._handlers
        root.setLevel(self._level)
        structlog.configure(**self._configured)


def _note(world: World, name: str, text: str, why: Any) -> None:
    world.trace("log", text.split()[0])
    cause = why[1] if isinstance(why, tuple) else sys.exc_info()[1] if why is True else why
    lines = traceback.format_exception(cause) if isinstance(cause, BaseException) else []
    with suppress(Violated):
        world.invariants.logged(name, text, "".join(lines))


@lru_cache(maxsize=1)
def _script() -> MemoScript:
    return MemoScript()


@lru_cache(maxsize=1)
def _template() -> tuple[sqlite3.Connection, dict[str, str]]:
    """A migrated database with the tenants, and their keys."""
    keeper = _open("template")
    keys: dict[str, str] = {}

    async def make(engine: AsyncEngine) -> None:
        DISK.set(Disk(Random(0), "template", lambda *what: None, delay_s=(0.0, 0.0)))
        repository = Repository(engine)
        await repository.upgrade()
        tenants = Tenants(
            repository, secret=SECRET, cache_s=0.0, clock=lambda: 0.0, random=Random(1).randbytes, wall=lambda: _EPOCH
        )
        for name in TENANTS:
            keys[name] = await tenants.create_key(name, "simulated")
        await Repository(shared()).tenants()  # its first connection asks more than the later ones

    asyncio.run(make(database()))
    gc.collect()
    return keeper, keys
