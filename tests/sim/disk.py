"""The disk under SQLite, as a gateway's database driver meets it: slow, full, gone, or unsure whether it has committed.

SQL and transactions are SQLite's own. An aiosqlite connection hands every call to its thread; here it waits for the
disk on virtual time instead, and then makes the call itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

import aiosqlite
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from app.tenants.repository import Repository
from tests.sim.loop import PROCESS

SECRET = "simulated"  # noqa: S105
TENANTS = ("ada", "bea", "cyd")
_BUSY_S = 5.0
"""As in app/tenants/repository.py."""


@dataclass(slots=True)
class Disk:
    """One database. The faults are switched on and off while it is used."""

    random: Random
    name: str
    trace: Callable[..., None]
    delay_s: tuple[float, float] = (0.0001, 0.005)
    fails: float = 0.0
    """Part of the accesses that fail, before they have done anything."""
    forgets: float = 0.0
    """Part of the commits that are made, but reported as failed."""
    broken: bool = False
    """All of them fail."""
    opened: list[_Connection] = field(default_factory=list)

    def close(self) -> None:
        for connection in self.opened:
            connection.stop()

    async def access(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        process, name = PROCESS.get(), getattr(call, "__name__", "")
        closing = name in ("rollback", "close")
        await asyncio.sleep(self.random.uniform(*self.delay_s))
        if process is not None and not process.alive:
            raise sqlite3.OperationalError("the process is dead")
        if not closing and (self.broken or self.random.random() < self.fails):
            self.trace("disk", name, "fails")
            raise sqlite3.OperationalError("disk I/O error")
        found = await self._unlocked(call, *args, **options)
        self.trace("disk", name)
        if name == "commit" and self.random.random() < self.forgets:
            self.trace("disk", name, "forgotten")
            raise sqlite3.OperationalError("disk I/O error")
        return found

    async def _unlocked(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """SQLite would block its thread while another process writes."""
        until = asyncio.get_running_loop().time() + _BUSY_S
        while True:
            try:
                return call(*args, **options)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(0.01)


DISK: contextvars.ContextVar[Disk] = contextvars.ContextVar("disk")


class _Connection(aiosqlite.Connection):
    def __init__(self, disk: Disk) -> None:
        super().__init__(lambda: _open(disk.name), iter_chunk_size=64)
        self._disk = disk
        disk.opened.append(self)

    async def _execute(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._connection is None:
            raise ValueError("Connection closed")
        return await self._disk.access(fn, *args, **options)

    def __await__(self) -> Any:
        return self._connect().__await__()

    async def _connect(self) -> _Connection:
        self._connection = await self._disk.access(self._connector)
        return self

    async def close(self) -> None:
        self.stop()

    def stop(self) -> None:
        """At once: what was not committed is rolled back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.stop()


def _open(name: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{name}?mode=memory&cache=shared", uri=True, timeout=0, check_same_thread=False)


def database() -> AsyncEngine:
    """Opens the disk that the context names, anew each time."""
    return create_async_engine(
        "sqlite+aiosqlite:///simulated", async_creator=lambda: _Connection(DISK.get()), poolclass=NullPool
    )


@lru_cache(maxsize=1)
def shared() -> AsyncEngine:
    """One for all simulations of this process: what SQLAlchemy has compiled is no part of what is simulated."""
    return database()


class Migrated(Repository):
    """Its tables were made before the simulation began."""

    async def upgrade(self) -> None:
        pass
