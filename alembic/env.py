"""Runs migrations: inside the gateway on the connection that it hands over, or by hand with `python -m alembic`."""

from __future__ import annotations

import asyncio

from sqlalchemy import Connection

from alembic import context
from app.config import Settings
from app.tenants.repository import open_database
from app.tenants.tables import Base


def migrate(connection: Connection) -> None:
    # SQLite can't alter a table in place: `render_as_batch` copies it.
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


async def migrate_by_hand() -> None:
    database = open_database(Settings().database)
    async with database.begin() as connection:
        await connection.run_sync(migrate)
    await database.dispose()


if context.is_offline_mode():
    context.configure(dialect_name="sqlite", target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif (given := context.config.attributes.get("connection")) is not None:
    migrate(given)
else:
    asyncio.run(migrate_by_hand())
