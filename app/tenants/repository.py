"""All SQL of the gateway, and the upgrade of its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from pathlib import Path

from alembic.config import Config
from sqlalchemy import Connection, event, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from alembic import command
from app.tenants.tables import ApiKey, Tenant, Usage

MIGRATIONS = Path(__file__).resolve().parent.parent.parent / "alembic"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as a list shows it."""

    id: str
    tenant: str
    name: str
    prefix: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class UsageKey:
    tenant_id: str
    model: str
    day: date


@dataclass(slots=True)
class Counts:
    """What one or more streams used: tokens, requests and steps."""

    requests: int = 0
    prompt: int = 0
    completion: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    steps: int = 0

    def add(self, other: Counts) -> None:
        for name, count in asdict(other).items():
            setattr(self, name, getattr(self, name) + count)


def open_database(url: str) -> AsyncEngine:
    """Connect to SQLite or PostgreSQL; SQLite's folder is made if it isn't there."""
    parsed = make_url(url)
    sqlite = parsed.get_backend_name() == "sqlite"
    if sqlite and parsed.database and parsed.database != ":memory:":
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    database = create_async_engine(parsed, pool_pre_ping=not sqlite)
    if sqlite:
        event.listen(database.sync_engine, "connect", _prepare_sqlite)
    return database


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    """WAL lets `keys create` write while the gateway runs; SQLite checks foreign keys only when told to."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


class Repository:
    def __init__(self, database: AsyncEngine) -> None:
        self._database = database

    async def upgrade(self) -> None:
        """Bring the schema to the newest version, as `alembic upgrade head` does."""
        async with self._database.begin() as connection:
            await connection.run_sync(_upgrade)

    async def close(self) -> None:
        await self._database.dispose()

    async def ping(self) -> None:
        """Raises SQLAlchemyError when the database can't be reached."""
        async with self._database.connect() as connection:
            await connection.execute(text("SELECT 1"))

    async def tenant_id(self, name: str) -> str | None:
        async with self._database.connect() as connection:
            return (await connection.execute(select(Tenant.id).where(Tenant.name == name))).scalar_one_or_none()

    async def add_tenant(self, *, id: str, name: str, now: datetime) -> None:  # noqa: A002
        async with self._database.begin() as connection:
            await connection.execute(insert(Tenant).values(id=id, name=name, created_at=now))

    async def add_key(self, *, id: str, tenant_id: str, name: str, prefix: str, digest: bytes, now: datetime) -> None:  # noqa: A002
        async with self._database.begin() as connection:
            await connection.execute(
                insert(ApiKey).values(
                    id=id, tenant_id=tenant_id, name=name, prefix=prefix, digest=digest, created_at=now
                )
            )

    async def tenant_of_key(self, digest: bytes) -> tuple[str, str] | None:
        """(id, name) of the tenant whose key, not revoked, has this digest."""
        query = (
            select(Tenant.id, Tenant.name)
            .join(ApiKey, ApiKey.tenant_id == Tenant.id)
            .where(ApiKey.digest == digest, ApiKey.revoked_at.is_(None))
        )
        async with self._database.connect() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else (row.id, row.name)

    async def keys(self) -> list[KeyRecord]:
        query = (
            select(ApiKey.id, Tenant.name, ApiKey.name, ApiKey.prefix, ApiKey.created_at, ApiKey.revoked_at)
            .join(Tenant, ApiKey.tenant_id == Tenant.id)
            .order_by(ApiKey.created_at)
        )
        async with self._database.connect() as connection:
            return [KeyRecord(*row) for row in (await connection.execute(query)).all()]

    async def revoke(self, id: str, *, now: datetime) -> bool:  # noqa: A002
        """False when there is no such key that is still valid."""
        query = update(ApiKey).where(ApiKey.id == id, ApiKey.revoked_at.is_(None)).values(revoked_at=now)
        async with self._database.begin() as connection:
            return (await connection.execute(query)).rowcount > 0

    async def add_usage(self, counts: Mapping[UsageKey, Counts]) -> None:
        """Add to what is stored, in one transaction."""
        if not counts:
            return
        upsert = sqlite_insert if self._database.dialect.name == "sqlite" else postgres_insert
        async with self._database.begin() as connection:
            for key, count in counts.items():
                added = asdict(count)
                statement = upsert(Usage).values(tenant_id=key.tenant_id, model=key.model, day=key.day, **added)
                total = {name: getattr(Usage, name) + getattr(statement.excluded, name) for name in added}
                await connection.execute(
                    statement.on_conflict_do_update(index_elements=["tenant_id", "model", "day"], set_=total)
                )

    async def usage(self, tenant_id: str) -> dict[UsageKey, Counts]:
        async with self._database.connect() as connection:
            rows = (await connection.execute(select(Usage.__table__).where(Usage.tenant_id == tenant_id))).mappings()
            return {
                UsageKey(row["tenant_id"], row["model"], row["day"]): Counts(
                    **{name: row[name] for name in Counts.__dataclass_fields__}
                )
                for row in rows
            }


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
