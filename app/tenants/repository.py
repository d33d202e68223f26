"""All SQL of the gateway, and the upgrade of its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from alembic.config import Config
from sqlalchemy import Connection, Row, delete, event, insert, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from alembic import command
from app.tenants.tables import ApiKey, Tenant, Usage, UsageWriter
from app.tenants.terms import TenantId, Terms

_MIGRATING = 0x7061_6365
"""PostgreSQL's advisory lock of this number: of several gateways that start at once, one migrates."""
_WRITERS_DAYS = 30
"""A gateway that has written nothing for so long is gone; it may well run on, with a batch that is not in doubt."""
_TERMS = tuple(field.name for field in fields(Terms))
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
class TenantRecord:
    """A tenant as a list shows it."""

    id: str
    name: str
    created_at: datetime
    terms: Terms


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one tenant used of one model in one day (UTC)."""

    tenant: str
    model: str
    day: date
    counts: Counts


@dataclass(frozen=True, slots=True)
class UsageKey:
    tenant_id: str
    model: str
    day: date


@dataclass(frozen=True, slots=True)
class Batch:
    """Which of a writer's batches this is: they are numbered from 1 on, and the next follows once one is stored."""

    writer: str
    number: int
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
    database = create_async_engine(parsed, pool_pre_ping=not sqlite, hide_parameters=True)
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

    async def tenant(self, name: str) -> TenantRecord | None:
        async with self._database.connect() as connection:
            row = (await connection.execute(select(Tenant.__table__).where(Tenant.name == name))).one_or_none()
        return None if row is None else _tenant_record(row)

    async def tenants(self) -> list[TenantRecord]:
        async with self._database.connect() as connection:
            rows = await connection.execute(select(Tenant.__table__).order_by(Tenant.name))
            return [_tenant_record(row) for row in rows]

    async def add_tenant(self, *, id: str, name: str, now: datetime, terms: Terms = Terms()) -> None:  # noqa: A002, B008
        """Raises IntegrityError if the name is taken."""
        async with self._database.begin() as connection:
            await connection.execute(insert(Tenant).values(id=id, name=name, created_at=now, **_stored(terms)))

    async def set_terms(self, id: str, terms: Terms) -> None:  # noqa: A002
        async with self._database.begin() as connection:
            await connection.execute(update(Tenant).where(Tenant.id == id).values(**_stored(terms)))

    async def add_key(self, *, id: str, tenant_id: str, name: str, prefix: str, digest: bytes, now: datetime) -> None:  # noqa: A002
        async with self._database.begin() as connection:
            await connection.execute(
                insert(ApiKey).values(
                    id=id, tenant_id=tenant_id, name=name, prefix=prefix, digest=digest, created_at=now
                )
            )

    async def tenant_of_key(self, digest: bytes, *, now: datetime) -> tuple[TenantId, datetime | None] | None:
        """The tenant whose key, not revoked by `now`, has this digest; and until when that key is good."""
        query = (
            select(Tenant.__table__, ApiKey.revoked_at)
            .join(ApiKey, ApiKey.tenant_id == Tenant.id)
            .where(ApiKey.digest == digest, or_(ApiKey.revoked_at.is_(None), ApiKey.revoked_at > now))
        )
        async with self._database.connect() as connection:
            row = (await connection.execute(query)).one_or_none()
        return (
            None if row is None else (TenantId(row.id, row.name, _terms(row)), row.revoked_at and _utc(row.revoked_at))
        )

    async def keys(self, tenant: str | None = None) -> list[KeyRecord]:
        """All keys, or those of the tenant of that name."""
        query = (
            select(ApiKey.id, Tenant.name, ApiKey.name, ApiKey.prefix, ApiKey.created_at, ApiKey.revoked_at)
            .join(Tenant, ApiKey.tenant_id == Tenant.id)
            .order_by(ApiKey.created_at, ApiKey.id)
        )
        if tenant is not None:
            query = query.where(Tenant.name == tenant)
        async with self._database.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [KeyRecord(*row[:4], _utc(row[4]), row[5] and _utc(row[5])) for row in rows]

    async def revoke(self, id: str, *, at: datetime, now: datetime) -> KeyRecord | None:  # noqa: A002
        """End a key at `at`, or sooner if that was its end already. None when it is not, or no longer, valid."""
        valid = or_(ApiKey.revoked_at.is_(None), ApiKey.revoked_at > now)
        earlier = or_(ApiKey.revoked_at.is_(None), ApiKey.revoked_at > at)
        async with self._database.begin() as connection:
            found = await connection.execute(select(ApiKey.id).where(ApiKey.id == id, valid))
            if found.one_or_none() is None:
                return None
            await connection.execute(update(ApiKey).where(ApiKey.id == id, earlier).values(revoked_at=at))
        return next(key for key in await self.keys() if key.id == id)

    async def add_usage(self, counts: Mapping[UsageKey, Counts], batch: Batch) -> None:
        """Add to what is stored, in one transaction, unless this batch is stored already: then the database had
        committed it, and its answer was lost.
        """
        if not counts:
            return
        upsert = sqlite_insert if self._database.dialect.name == "sqlite" else postgres_insert
        async with self._database.begin() as connection:
            if not await _claim(connection, batch):
                return
            for key, count in counts.items():
                added = asdict(count)
                statement = upsert(Usage).values(tenant_id=key.tenant_id, model=key.model, day=key.day, **added)
                total = {name: getattr(Usage, name) + getattr(statement.excluded, name) for name in added}
                await connection.execute(
                    statement.on_conflict_do_update(index_elements=["tenant_id", "model", "day"], set_=total)
                )

    async def usage(
        self, *, tenant: str | None = None, since: date | None = None, until: date | None = None
    ) -> list[UsageRow]:
        """By day, tenant and model. `tenant`: of that name only; `since`, `until`: days, both included."""
        query = (
            select(Tenant.name, Usage.__table__)
            .join(Tenant, Usage.tenant_id == Tenant.id)
            .order_by(Usage.day, Tenant.name, Usage.model)
        )
        if tenant is not None:
            query = query.where(Tenant.name == tenant)
        if since is not None:
            query = query.where(Usage.day >= since)
        if until is not None:
            query = query.where(Usage.day <= until)
        async with self._database.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [
            UsageRow(
                row.name,
                row.model,
                row.day,
                Counts(**{field.name: getattr(row, field.name) for field in fields(Counts)}),
            )
            for row in rows
        ]


async def _claim(connection: AsyncConnection, batch: Batch) -> bool:
    """Note the batch as stored, in this transaction. False: it was."""
    own = UsageWriter.id == batch.writer
    stored = {"batch": batch.number, "day": batch.day}
    # A first attempt that is still committing holds the row: this waits for it, and then finds the number taken.
    found = await connection.execute(update(UsageWriter).where(own, UsageWriter.batch < batch.number).values(stored))
    if found.rowcount:
        return True
    if (await connection.execute(select(UsageWriter.batch).where(own))).one_or_none() is not None:
        return False
    await connection.execute(delete(UsageWriter).where(UsageWriter.day < batch.day - timedelta(_WRITERS_DAYS)))
    await connection.execute(insert(UsageWriter).values(id=batch.writer, **stored))
    return True


def _terms(row: Row[Any]) -> Terms:
    terms: dict[str, Any] = {}
    for name in _TERMS:
        stored = getattr(row, name)
        terms[name] = tuple(stored) if isinstance(stored, list) else stored
    return Terms(**terms)


def _stored(terms: Terms) -> dict[str, Any]:
    return {name: list(value) if isinstance(value := getattr(terms, name), tuple) else value for name in _TERMS}


def _tenant_record(row: Row[Any]) -> TenantRecord:
    return TenantRecord(row.id, row.name, _utc(row.created_at), _terms(row))


def _utc(time: datetime) -> datetime:
    """SQLite gives times back without their zone."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _MIGRATING})
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
