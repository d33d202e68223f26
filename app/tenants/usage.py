"""Usage: counted in memory, written in batches. The path of a token never waits for the database."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from datetime import date

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.tenants.repository import Batch, Counts, Repository, UsageKey
from edge.protocol.frames import Usage

log = structlog.get_logger("paceline.usage")


class UsageCounter:
    """At most one entry in memory per tenant, model and day: its size doesn't grow with traffic."""

    def __init__(self, repository: Repository, *, today: Callable[[], date]) -> None:
        self._repository = repository
        self._today = today
        self._writer = secrets.token_hex(8)
        self._counts: dict[UsageKey, Counts] = {}
        self._written = 0
        """Batches that are stored for sure."""
        self._batch: dict[UsageKey, Counts] = {}
        """The next one, once it was tried: an error may mean that it wasn't stored, or that the answer was lost."""
        self._writing = asyncio.Lock()

    def add(self, tenant_id: str, model: str, usage: Usage, *, requests: int = 0) -> None:
        """Count what was used since the last time. `usage` is the difference."""
        key = UsageKey(tenant_id, model, self._today())
        self._counts.setdefault(key, Counts()).add(
            Counts(
                requests=requests,
                prompt=usage.prompt,
                completion=usage.completion,
                drafted=usage.drafted,
                verified=usage.verified,
                accepted=usage.accepted,
                steps=usage.steps,
            )
        )

    async def flush(self) -> None:
        """Write what was counted. If the database can't take it, it is kept for the next time."""
        async with self._writing:  # whoever flushes returns when all that was counted before is written
            while self._batch or self._counts:
                if not self._batch:
                    self._batch, self._counts = self._counts, {}
                batch = Batch(self._writer, self._written + 1, self._today())
                await self._repository.add_usage(self._batch, batch)
                self._batch = {}
                self._written += 1

    async def run(self, every_s: float, *, gather: Callable[[], None], stop: asyncio.Event) -> None:
        """Flush every so often, until told to stop. `gather` adds what running streams have used so far.

        It is not cancelled: the stop waits until the last flush is through.
        """
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await stop.wait()
            gather()
            try:
                await self.flush()
            except (SQLAlchemyError, OSError):
                log.exception("usage.flush_failed")
