from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, date, datetime

import pytest
from sqlalchemy.exc import IntegrityError

from app.tenants.repository import Batch, Counts, Repository, UsageKey, UsageRow
from app.tenants.usage import UsageCounter
from edge.protocol.frames import Usage

TODAY = date(2026, 1, 2)


@pytest.fixture
async def acme(repository: Repository) -> Repository:
    """With one tenant, whose id is `t`."""
    await repository.add_tenant(id="t", name="acme", now=datetime.now(UTC))
    return repository


async def test_counts_add_up_over_flushes(acme: Repository) -> None:
    counter = UsageCounter(acme, today=lambda: TODAY)
    counter.add("t", "m", Usage(prompt=5, completion=9, drafted=4, verified=3, accepted=2, steps=7), requests=1)
    counter.add("t", "m", Usage(completion=3))
    await counter.flush()
    counter.add("t", "m", Usage(prompt=10), requests=2)
    await counter.flush()
    await counter.flush()
    assert await acme.usage() == [
        UsageRow(
            "acme",
            "m",
            TODAY,
            Counts(requests=3, prompt=15, completion=12, drafted=4, verified=3, accepted=2, steps=7),
        )
    ]


async def test_usage_is_found_by_tenant_and_days(acme: Repository) -> None:
    await acme.add_tenant(id="u", name="umbrella", now=datetime.now(UTC))
    days = [date(2026, 1, day) for day in (1, 2, 3)]
    counts = {UsageKey(tenant, "m", day): Counts(requests=1) for tenant in ("t", "u") for day in days}
    await acme.add_usage(counts, Batch("w", 1, TODAY))
    rows = await acme.usage(tenant="umbrella", since=days[1], until=days[2])
    assert [(row.tenant, row.day) for row in rows] == [("umbrella", days[1]), ("umbrella", days[2])]
    assert len(await acme.usage()) == 6


async def test_the_last_flush_is_not_cut_off_by_the_stop(acme: Repository) -> None:
    counter, stop, gathered = UsageCounter(acme, today=lambda: TODAY), asyncio.Event(), []

    def gather() -> None:
        gathered.append(True)
        counter.add("t", "m", Usage(completion=1))

    running = asyncio.create_task(counter.run(3600, gather=gather, stop=stop))
    await asyncio.sleep(0)
    stop.set()
    await running
    assert gathered == [True]
    assert [row.counts.completion for row in await acme.usage()] == [1]


async def test_what_could_not_be_written_is_kept(repository: Repository) -> None:
    counter = UsageCounter(repository, today=lambda: TODAY)
    counter.add("later", "m", Usage(prompt=5), requests=1)
    with pytest.raises(IntegrityError):
        await counter.flush()  # no such tenant yet
    counter.add("later", "m", Usage(prompt=6), requests=1)
    await repository.add_tenant(id="later", name="later", now=datetime.now(UTC))
    await counter.flush()
    assert [row.counts for row in await repository.usage()] == [Counts(requests=2, prompt=11)]


async def test_a_batch_whose_answer_was_lost_is_counted_once(acme: Repository) -> None:
    """Found by the simulation: the connection broke between the database's commit and its answer."""
    lost = [True, False, False]

    class Unsure(Repository):
        async def add_usage(self, counts: Mapping[UsageKey, Counts], batch: Batch) -> None:
            await super().add_usage(counts, batch)
            if lost.pop(0):
                raise OSError("the connection is gone")

    counter = UsageCounter(Unsure(acme._database), today=lambda: TODAY)
    counter.add("t", "m", Usage(completion=5), requests=1)
    with pytest.raises(OSError, match="gone"):
        await counter.flush()
    counter.add("t", "m", Usage(completion=2), requests=1)
    await counter.flush()
    assert [row.counts for row in await acme.usage()] == [Counts(requests=2, completion=7)]


async def test_two_gateways_batches_are_told_apart(acme: Repository) -> None:
    counts = {UsageKey("t", "m", TODAY): Counts(completion=1)}
    for writer, number in (("one", 1), ("two", 1), ("one", 2), ("one", 2), ("one", 1), ("two", 1)):
        await acme.add_usage(counts, Batch(writer, number, TODAY))
    assert [row.counts.completion for row in await acme.usage()] == [3]
