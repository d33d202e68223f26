"""The database's tables. alembic/versions/ creates them; a test holds that the two agree."""

from __future__ import annotations

from datetime import date, datetime

from sqlalchemy import JSON, BigInteger, Date, DateTime, Float, ForeignKey, Integer, LargeBinary, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Tenant(Base):
    __tablename__ = "tenants"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    # Its terms (terms.py), by the same names.
    weight: Mapped[float] = mapped_column(Float, server_default="1")
    requests_per_minute: Mapped[int | None] = mapped_column(Integer)
    tokens_per_minute: Mapped[int | None] = mapped_column(Integer)
    concurrent_streams: Mapped[int | None] = mapped_column(Integer)
    draft_tokens_per_minute: Mapped[int | None] = mapped_column(Integer)
    models: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    policies: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))


class ApiKey(Base):
    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    prefix: Mapped[str] = mapped_column(String(16))
    """The key's first characters, to tell it from others in a list."""
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    """HMAC-SHA256 of the key under the gateway's secret. The key itself is stored nowhere."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    revoked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    """In the future for a key that was rotated: until then its holders can change to the new one."""


class Usage(Base):
    """What a tenant used of a model in a day (UTC): counts, no content."""

    __tablename__ = "usage"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    model: Mapped[str] = mapped_column(String(200), primary_key=True)
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    requests: Mapped[int] = mapped_column(BigInteger)
    prompt: Mapped[int] = mapped_column(BigInteger)
    completion: Mapped[int] = mapped_column(BigInteger)
    drafted: Mapped[int] = mapped_column(BigInteger)
    verified: Mapped[int] = mapped_column(BigInteger)
    accepted: Mapped[int] = mapped_column(BigInteger)
    steps: Mapped[int] = mapped_column(BigInteger)


class UsageWriter(Base):
    """The last batch of usage that one life of a gateway has stored: sent again, it is not added again."""

    __tablename__ = "usage_writers"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    batch: Mapped[int] = mapped_column(BigInteger)
    day: Mapped[date] = mapped_column(Date)
    """When that was: rows of gateways that are long gone are deleted."""
