"""Usage: counted in memory, written in batches. The path of a token never waits for the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.tenants.repository import Counts, Repository, UsageKey
from edge.protocol.frames import Usage

log = structlog.get_logger("paceline.usage")


class UsageCounter:
    """At most one entry in memory per tenant, model and day: its size doesn't grow with traffic."""

    def __init__(self, repository: Repository, *, today: Callable[[], date]) -> None:
        self._repository = repository
        self._today = today
        self._counts: dict[UsageKey, Counts] = {}

    def add(self, tenant_id: str, model: str, usage: Usage, *, carried: int = 0) -> None:
        """Count a stream that ended. `carried`: tokens of its completion that were made elsewhere."""
        key = UsageKey(tenant_id, model, self._today())
        self._counts.setdefault(key, Counts()).add(
            Counts(
                requests=1,
                prompt=usage.prompt,
                completion=max(0, usage.completion - carried),
                drafted=usage.drafted,
                verified=usage.verified,
                accepted=usage.accepted,
                steps=usage.steps,
            )
        )

    async def flush(self) -> None:
        """Write what was counted. If the database can't take it, it is kept for the next time."""
        counts, self._counts = self._counts, {}
        try:
            await self._repository.add_usage(counts)
        except BaseException:
            for key, count in counts.items():
                self._counts.setdefault(key, Counts()).add(count)
            raise

    async def run(self, every_s: float) -> None:
        """Flush every so often, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.flush()
            except SQLAlchemyError:
                log.exception("usage.flush_failed")
