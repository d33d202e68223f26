"""The operator's view: what the gateway does now, once or as server-sent events, and the page that shows it.

    GET /ops              the page; it asks for the admin key
    GET /admin/overview   one picture
    GET /admin/events     a picture each second, until the reader leaves

A picture holds counts and times by stream, never what anybody wrote.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from itertools import chain
from typing import Any, Final

import orjson
from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse, Response
from fastapi.sse import EventSourceResponse

from app.api.admin import require_admin
from app.api.deps import Gateway, GatewayDep
from app.api.openapi import MANAGEMENT
from app.engine.base import Load, Replicated
from app.engine.generation import Generation
from app.errors import NotFound

router = APIRouter()

EVERY_S: Final = 1.0
STREAMS_SHOWN: Final = 2000
"""A picture stays small, whatever runs; `streams_total` tells of the rest."""


@router.get("/ops", include_in_schema=False)
async def page(gateway: GatewayDep) -> Response:
    path = gateway.settings.static_dir / "ops.html"
    if not path.is_file():
        raise NotFound("This gateway was installed without its pages.")
    return FileResponse(path)


@router.get("/admin/overview", dependencies=[Depends(require_admin)], responses=MANAGEMENT)
async def overview(gateway: GatewayDep) -> dict[str, Any]:
    return picture(gateway)


@router.get("/admin/events", dependencies=[Depends(require_admin)], responses=MANAGEMENT)
async def events(gateway: GatewayDep) -> Response:
    return EventSourceResponse(_events(gateway))


async def _events(gateway: Gateway) -> AsyncIterator[bytes]:
    while not gateway.draining:
        yield b"data: " + orjson.dumps(picture(gateway)) + b"\n\n"
        await asyncio.sleep(EVERY_S)


def picture(gateway: Gateway) -> dict[str, Any]:
    """What there is to see at this moment. Milliseconds and tokens."""
    engine, settings = gateway.engine, gateway.settings
    streams = list(_streams(gateway))
    shown: dict[str, Any] = {
        "at": time.time(),
        "model": engine.model.id,
        "engine": settings.engine,
        "failure": engine.failure(),
        "draining": gateway.draining,
        "slots": settings.engine_streams,
        "queue_limit": settings.engine_queue,
        "load": _load(engine.load()),
        "streams_total": len(streams),
        "streams": streams[:STREAMS_SHOWN],
        "tokens": _tokens(gateway),
        "faults": [{"at": f.at, "where": f.where, "code": f.code} for f in reversed(gateway.metrics.faults)],
        "replicas": [],
    }
    if isinstance(engine, Replicated):
        shown["replicas"] = [
            {
                "index": replica.index,
                "state": replica.state,
                "streams": replica.streams,
                "restarts": replica.restarts,
                "fault": replica.fault,
                "load": _load(replica.load),
            }
            for replica in engine.replicas()
        ]
    return shown


def _tokens(gateway: Gateway) -> dict[str, float]:
    """Of all tenants, since the start."""
    return {what: gateway.metrics.total_tokens(what) for what in ("completion", "verified", "accepted")}


def _load(load: Load) -> dict[str, Any]:
    return {
        "running": load.running,
        "waiting": load.waiting,
        "context_used": load.context_used,
        "context_total": load.context_total,
        "step_ms": round(load.step_s * 1000, 2),
        "last_step": [load.last_step_tokens, round(load.last_step_s * 1000, 2)],
    }


def _streams(gateway: Gateway) -> Iterable[dict[str, Any]]:
    """Those of devices and those that an HTTP answer is made of, in one shape."""
    of_devices = (
        (held.id, held.tenant.name, "parked" if held.holder is None else "device", held.generation)
        for held in gateway.streams
        if held.generation.finished is None
    )
    of_answers = (
        (generation.request.id, gateway.accounts.tenant_name(generation), "http", generation)
        for generation in list(gateway.answers)
        if generation.finished is None
    )
    for name, tenant, kind, generation in chain(of_devices, of_answers):
        yield _stream(name, tenant, kind, generation)


def _stream(name: str, tenant: str, kind: str, generation: Generation) -> dict[str, Any]:
    usage = generation.usage()
    return {
        "id": name,
        "tenant": tenant,
        "kind": kind,
        "policy": generation.request.policy,
        "prompt": len(generation.request.prompt),
        "length": len(generation.ledger),
        "limit": generation.request.max_tokens,
        "steps": usage.steps,
        "drafted": usage.drafted,
        "verified": usage.verified,
        "accepted": usage.accepted,
        "matched": usage.matched,
    }
