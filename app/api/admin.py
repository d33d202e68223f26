"""The operator's endpoints, below /admin. They take the admin key (PACELINE_ADMIN_KEY); without one they are closed."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import APIRouter, Body, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection

from app.api.deps import GatewayDep
from app.api.openapi import MANAGEMENT
from app.engine.base import Replicated
from app.errors import Forbidden, InvalidKey, NotFound


async def require_admin(connection: HTTPConnection, gateway: GatewayDep) -> None:
    """Raises Forbidden if the gateway has no admin key, InvalidKey if this isn't it."""
    wanted = gateway.settings.admin_key.get_secret_value()
    if not wanted:
        raise Forbidden("This gateway has no admin key: set PACELINE_ADMIN_KEY and start it again.")
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), wanted.encode()):
        raise InvalidKey("Send the admin key as `Authorization: Bearer …`.")


router = APIRouter(prefix="/admin", dependencies=[Depends(require_admin)], responses=MANAGEMENT)


class Replica(BaseModel):
    """One replica, as the pool sees it."""

    index: int
    state: str
    streams: int
    restarts: int
    fault: str | None


class Drain(BaseModel):
    model_config = ConfigDict(extra="forbid")

    within_s: float = Field(default=60.0, ge=0, le=86_400)
    """How long its streams may go on there; those that are left then are moved."""


@router.get("/replicas")
async def replicas(gateway: GatewayDep) -> list[Replica]:
    """All replicas; none where the engine runs in the gateway's own process."""
    engine = gateway.engine
    found = engine.replicas() if isinstance(engine, Replicated) else ()
    return [
        Replica(index=one.index, state=one.state, streams=one.streams, restarts=one.restarts, fault=one.fault)
        for one in found
    ]


@router.post("/replicas/{index}/drain")
async def drain(index: int, gateway: GatewayDep, order: Annotated[Drain, Body()]) -> Replica:
    """Empty a replica and start it anew. Answers once it is empty: after `within_s` seconds at the latest."""
    engine = gateway.engine
    if not isinstance(engine, Replicated) or not 0 <= index < len(engine.replicas()):
        raise NotFound(f"There is no replica {index}.")
    await engine.drain(index, within_s=order.within_s)
    return (await replicas(gateway))[index]
