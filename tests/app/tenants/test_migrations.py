from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from alembic import command
from app.tenants.repository import MIGRATIONS, Repository, open_database
from app.tenants.tables import Base
from app.tenants.terms import Terms


def _alembic(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


async def test_the_migrations_make_the_tables_that_the_code_uses(repository: Repository) -> None:
    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), Base.metadata))

    async with repository._database.connect() as connection:
        assert await connection.run_sync(differences) == []
    await repository.upgrade()  # again: nothing to do


async def test_a_downgrade_undoes_each_and_keeps_the_tenants(repository: Repository) -> None:
    await repository.add_tenant(id="t", name="acme", now=datetime.now(UTC), terms=Terms(weight=3, models=("m",)))
    async with repository._database.begin() as connection:
        await connection.run_sync(lambda sync: command.downgrade(_alembic(sync), "0001"))
        rows = (await connection.execute(text("SELECT * FROM tenants"))).mappings().all()
        assert [set(row) for row in rows] == [{"id", "name", "created_at"}]
    await repository.upgrade()
    assert [(record.name, record.terms) for record in await repository.tenants()] == [("acme", Terms())]
    async with repository._database.begin() as connection:
        await connection.run_sync(lambda sync: command.downgrade(_alembic(sync), "base"))
        assert await connection.run_sync(lambda sync: inspect(sync).get_table_names()) == ["alembic_version"]


async def test_two_gateways_that_start_at_once_migrate_once(database_url: str) -> None:
    if database_url.startswith("sqlite"):
        return  # one file, one writer
    gateways = [Repository(open_database(database_url)) for _ in range(2)]
    await asyncio.gather(*(gateway.upgrade() for gateway in gateways))
    assert await gateways[0].tenants() == []
    for gateway in gateways:
        await gateway.close()
