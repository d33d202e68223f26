"""Tenants, their keys and what they have used: /admin/tenants, /admin/keys and /admin/usage for the operator, and
/v1/usage, where a tenant finds its own.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.admin import require_admin
from app.api.deps import Gateway, GatewayDep, TenantDep
from app.api.openapi import MANAGEMENT
from app.errors import Conflict, NotFound
from app.tenants.export import as_csv, usage_line
from app.tenants.repository import KeyRecord, TenantRecord
from app.tenants.service import NewKey, NoSuchTenant, TenantExists
from app.tenants.terms import NAME, Terms
from edge.protocol.frames import Policy

router = APIRouter(responses=MANAGEMENT)
admin = APIRouter(prefix="/admin", dependencies=[Depends(require_admin)], responses=MANAGEMENT)

Quota = Annotated[int, Field(ge=1, le=2_000_000_000)]
Name = Annotated[str, Field(pattern=NAME)]
DAY_S = 86_400.0


class TermsBody(BaseModel):
    """Terms; a field that is left out stays as it is, and null takes the bound away."""

    model_config = ConfigDict(extra="forbid")

    weight: float = Field(default=1.0, gt=0, le=1000)
    requests_per_minute: Quota | None = None
    tokens_per_minute: Quota | None = None
    concurrent_streams: Quota | None = None
    draft_tokens_per_minute: Quota | None = None
    models: tuple[str, ...] | None = None
    policies: Annotated[tuple[Policy, ...], Field(min_length=1)] | None = None

    def on(self, terms: Terms) -> Terms:
        """These, where they are given; else those."""
        return Terms(**(asdict(terms) | self.model_dump(include=self.model_fields_set & asdict(terms).keys())))


class NewTenant(TermsBody):
    name: Name


class NewKeyBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="", max_length=100)
    """What it is for."""


class Rotation(BaseModel):
    model_config = ConfigDict(extra="forbid")

    overlap_s: float = Field(default=DAY_S, ge=0, le=90 * DAY_S)
    """How long the old key is good beside the new one."""


class TenantShown(BaseModel):
    id: str
    name: str
    created_at: datetime
    terms: TermsBody

    @classmethod
    def of(cls, record: TenantRecord) -> TenantShown:
        terms = TermsBody.model_validate(asdict(record.terms))
        return cls(id=record.id, name=record.name, created_at=record.created_at, terms=terms)


class KeyShown(BaseModel):
    id: str
    tenant: str
    name: str
    prefix: str
    """The key's beginning."""
    created_at: datetime
    revoked_at: datetime | None
    """In the future while a rotated key is still good."""
    key: str | None = None
    """The whole key: in the answer that makes it, and never again."""

    @classmethod
    def of(cls, record: KeyRecord, key: str | None = None) -> KeyShown:
        return cls(**asdict(record), key=key)

    @classmethod
    def new(cls, made: NewKey) -> KeyShown:
        return cls.of(made.record, made.key)


@admin.get("/tenants")
async def list_tenants(gateway: GatewayDep) -> list[TenantShown]:
    return [TenantShown.of(record) for record in await gateway.tenants.tenants()]


@admin.post("/tenants", status_code=201)
async def create_tenant(body: NewTenant, gateway: GatewayDep) -> TenantShown:
    try:
        return TenantShown.of(await gateway.tenants.create_tenant(body.name, body.on(Terms())))
    except TenantExists:
        raise Conflict(f"There is a tenant {body.name} already.", param="name") from None


@admin.get("/tenants/{tenant}")
async def get_tenant(tenant: str, gateway: GatewayDep) -> TenantShown:
    return TenantShown.of(await _tenant(gateway, tenant))


@admin.patch("/tenants/{tenant}")
async def change_terms(tenant: str, body: TermsBody, gateway: GatewayDep) -> TenantShown:
    """Counts at once in this gateway; in others that share the database within PACELINE_KEY_CACHE_S."""
    terms = (await _tenant(gateway, tenant)).terms
    return TenantShown.of(await gateway.tenants.set_terms(tenant, body.on(terms)))


@admin.get("/tenants/{tenant}/keys")
async def list_keys(tenant: str, gateway: GatewayDep) -> list[KeyShown]:
    await _tenant(gateway, tenant)
    return [KeyShown.of(record) for record in await gateway.tenants.keys(tenant)]


@admin.post("/tenants/{tenant}/keys", status_code=201)
async def create_key(tenant: str, body: NewKeyBody, gateway: GatewayDep) -> KeyShown:
    try:
        return KeyShown.new(await gateway.tenants.add_key(tenant, body.name))
    except NoSuchTenant:
        raise _no_tenant(tenant) from None


@admin.post("/keys/{key_id}/rotate", status_code=201)
async def rotate_key(key_id: str, body: Rotation, gateway: GatewayDep) -> KeyShown:
    """A new key of the same tenant and name; the old one ends after the overlap."""
    made = await gateway.tenants.rotate(key_id, overlap_s=body.overlap_s)
    if made is None:
        raise _no_key(key_id)
    return KeyShown.new(made)


@admin.delete("/keys/{key_id}", status_code=204)
async def revoke_key(key_id: str, gateway: GatewayDep) -> None:
    if not await gateway.tenants.revoke(key_id):
        raise _no_key(key_id)


Since = Annotated[date | None, Query(description="First day (UTC).")]
Until = Annotated[date | None, Query(description="Last day (UTC), included.")]
Format = Annotated[Literal["json", "csv"], Query()]


@admin.get("/usage")
async def usage(
    gateway: GatewayDep,
    tenant: Annotated[str | None, Query(description="Of this tenant only.")] = None,
    since: Since = None,
    until: Until = None,
    format: Format = "json",  # noqa: A002
) -> Response:
    """By day, tenant and model, up to this moment."""
    return await _usage(gateway, tenant, since, until, format)


@router.get("/v1/usage")
async def own_usage(
    gateway: GatewayDep,
    tenant: TenantDep,
    since: Since = None,
    until: Until = None,
    format: Format = "json",  # noqa: A002
) -> Response:
    """The caller's own, by day and model, up to this moment."""
    return await _usage(gateway, tenant.name, since, until, format)


async def _usage(gateway: Gateway, tenant: str | None, since: date | None, until: date | None, kind: str) -> Response:
    gateway.accounts.settle()
    await gateway.usage.flush()
    rows = await gateway.repository.usage(tenant=tenant, since=since, until=until)
    if kind == "csv":
        return Response(as_csv(rows), media_type="text/csv")
    return JSONResponse({"object": "list", "data": [usage_line(row) for row in rows]})


async def _tenant(gateway: Gateway, name: str) -> TenantRecord:
    try:
        return await gateway.tenants.tenant(name)
    except NoSuchTenant:
        raise _no_tenant(name) from None


def _no_tenant(name: str) -> NotFound:
    return NotFound(f"There is no tenant {name[:100]!r}.")


def _no_key(key_id: str) -> NotFound:
    return NotFound(f"There is no valid key {key_id[:100]!r}.")
