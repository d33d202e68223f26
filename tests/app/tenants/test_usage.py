from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from app.tenants.repository import Counts, Repository, UsageKey, open_database
from app.tenants.tables import Base
from app.tenants.usage import UsageCounter
from edge.protocol.frames import Usage

TODAY = date(2026, 1, 2)


@pytest.fixture
async def repository(tmp_path: Path) -> AsyncIterator[Repository]:
    made = Repository(open_database(f"sqlite+aiosqlite:///{tmp_path}/test.db"))
    await made.upgrade()
    await made.add_tenant(id="t", name="acme", now=datetime.now(UTC))
    yield made
    await made.close()


async def test_counts_add_up_over_flushes(repository: Repository) -> None:
    counter = UsageCounter(repository, today=lambda: TODAY)
    counter.add("t", "m", Usage(prompt=5, completion=9, drafted=4, verified=3, accepted=2, steps=7))
    counter.add("t", "m", Usage(prompt=1, completion=9), carried=6)
    await counter.flush()
    counter.add("t", "m", Usage(prompt=10))
    await counter.flush()
    await counter.flush()
    assert await repository.usage("t") == {
        UsageKey("t", "m", TODAY): Counts(
            requests=3, prompt=16, completion=12, drafted=4, verified=3, accepted=2, steps=7
        )
    }


async def test_what_could_not_be_written_is_kept(repository: Repository) -> None:
    counter = UsageCounter(repository, today=lambda: TODAY)
    counter.add("later", "m", Usage(prompt=5))
    with pytest.raises(IntegrityError):
        await counter.flush()  # no such tenant yet
    counter.add("later", "m", Usage(prompt=6))
    await repository.add_tenant(id="later", name="later", now=datetime.now(UTC))
    await counter.flush()
    assert (await repository.usage("later"))[UsageKey("later", "m", TODAY)] == Counts(requests=2, prompt=11)


async def test_the_migrations_make_the_tables_that_the_code_uses(repository: Repository) -> None:
    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), Base.metadata))

    async with repository._database.connect() as connection:
        assert await connection.run_sync(differences) == []
    await repository.upgrade()  # again: nothing to do
