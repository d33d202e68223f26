"""Liveness, readiness and metrics. None of them needs a key: keep them off the public side of a proxy."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy.exc import SQLAlchemyError

from app.api.deps import GatewayDep
from app.engine.base import Replicated

router = APIRouter()


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "Something is missing; the body names it."}})
async def readyz(gateway: GatewayDep) -> Response:
    """Streams can begin: 503 while the engine is dead, the database away or the gateway shutting down."""
    problems = {}
    if gateway.draining:
        problems["gateway"] = "shutting down"
    if (failure := gateway.engine.failure()) is not None:
        problems["engine"] = failure
    try:
        await gateway.repository.ping()
    except (SQLAlchemyError, OSError):
        problems["database"] = "unreachable"
    body: dict[str, object] = {"status": "unready" if problems else "ready", "problems": problems}
    if isinstance(gateway.engine, Replicated):
        body["replicas"] = [
            {"state": replica.state, "streams": replica.streams, "restarts": replica.restarts, "fault": replica.fault}
            for replica in gateway.engine.replicas()
        ]
    return JSONResponse(body, status_code=503 if problems else 200)


@router.get("/metrics")
async def metrics(gateway: GatewayDep) -> Response:
    return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_LATEST)
