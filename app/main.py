"""The gateway put together: wiring only."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING

from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import bounds, errors
from app.api import admin, chat, drafter, health, models, openapi, ops, tenants, tickets, verify, webllm
from app.api.accounts import Accounts
from app.api.deps import Gateway
from app.api.quota_headers import QuotaHeaders
from app.api.streams import Streams
from app.api.tickets import Tickets
from app.config import Settings
from app.engine.base import Engine, Observable, Replicated
from app.engines import build_engine
from app.first_start import ensure_key
from app.pages import Pages
from app.telemetry import AccessLog, Metrics, ReplicaMetrics
from app.tenants.limits import Quotas
from app.tenants.repository import Repository, open_database
from app.tenants.service import Tenants
from app.tenants.usage import UsageCounter
from app.tracing import Tracing, exporting

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The page runs a model in WebAssembly: that needs its own code, workers from blobs, and (for threads) isolation.
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; connect-src 'self';"
        " img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    # The page's modules must all be of one version, so a browser asks each time; mostly the answer is 304.
    "Cache-Control": "no-cache",
}


def create_app(settings: Settings, engine: Engine | None = None) -> FastAPI:
    """The gateway's ASGI app. `engine`: what to use instead of the one that the settings name."""
    gateway = build(settings, engine or build_engine(settings))
    app = FastAPI(
        title="Paceline gateway",
        version=metadata.version("paceline"),
        lifespan=lambda _: running(gateway),
        docs_url=None,  # its page takes scripts from elsewhere
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    app.state.gateway = gateway
    errors.install(app)
    openapi.describe(app)
    for family in (chat, models, drafter, webllm, verify, tickets, health, admin, ops, tenants):
        app.include_router(family.router)
    app.include_router(tenants.admin)
    app.add_route("/v1/{path:path}", _nothing_here, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    if settings.static_dir.is_dir():
        app.mount("/", Pages(settings.static_dir), name="page")
    app.add_middleware(QuotaHeaders, quotas=gateway.quotas)
    app.add_middleware(SecurityHeaders)
    if settings.otlp_endpoint:
        app.add_middleware(Tracing, provider=_tracing(settings.otlp_endpoint))
    app.add_middleware(bounds.OneLength)
    app.add_middleware(AccessLog, metrics=gateway.metrics, body_bytes=settings.body_bytes, body_s=settings.body_s)
    return app


def build(
    settings: Settings,
    engine: Engine,
    repository: Repository | None = None,
    *,
    wall: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Gateway:
    """`repository`: what to use instead of the database that the settings name. `wall`: the time of day."""
    repository = repository or Repository(open_database(settings.database))
    tenants = Tenants(
        repository,
        secret=settings.secret.get_secret_value(),
        cache_s=settings.key_cache_s,
        clock=time.monotonic,
        wall=wall,
    )
    usage = UsageCounter(repository, today=lambda: wall().date())
    quotas = Quotas(time.monotonic)
    metrics = Metrics(engine.load, lambda: len(streams), tenants=settings.metrics_tenants)
    accounts = Accounts(lambda: engine.model.id, usage, quotas, metrics)
    streams = Streams(
        grace_s=settings.grace_s,
        per_tenant=settings.tenant_streams,
        account=accounts.close,
    )
    gateway = Gateway(
        settings=settings,
        engine=engine,
        repository=repository,
        tenants=tenants,
        usage=usage,
        quotas=quotas,
        accounts=accounts,
        streams=streams,
        tickets=Tickets(valid_s=settings.ticket_s, clock=time.monotonic),
        metrics=metrics,
    )
    if isinstance(engine, Observable):
        engine.observer = metrics
    if isinstance(engine, Replicated):
        gateway.metrics.registry.register(ReplicaMetrics(engine))
    return gateway


@contextlib.asynccontextmanager
async def running(gateway: Gateway) -> AsyncIterator[None]:
    """The gateway's life. On the way out nothing that was used is lost: streams end, are counted, and are written."""
    settings = gateway.settings
    try:
        await _start(gateway)
        stop = asyncio.Event()
        flushing = asyncio.create_task(
            gateway.usage.run(settings.usage_flush_s, gather=gateway.accounts.settle, stop=stop)
        )
        try:
            yield
        finally:
            gateway.drain()
            gateway.streams.close()
            try:
                await gateway.engine.stop()
            finally:  # an engine that can't even stop has been used all the same
                gateway.accounts.settle()
                stop.set()
                await flushing
                await gateway.usage.flush()
    finally:
        await gateway.repository.close()


class StartError(Exception):
    """The gateway can't start; the message is for the operator."""


def _tracing(endpoint: str) -> TracerProvider:
    try:
        return exporting(endpoint)
    except ImportError as error:
        message = "PACELINE_OTLP_ENDPOINT needs OpenTelemetry, which isn't installed: pip install 'paceline[otel]'."
        raise StartError(message) from error


async def _start(gateway: Gateway) -> None:
    settings = gateway.settings
    try:
        await gateway.repository.upgrade()
        await ensure_key(gateway.tenants, settings.data_dir)
    except (SQLAlchemyError, OSError) as error:
        raise StartError(f"The database {settings.database_shown} can't be used: {error}") from error
    try:
        await gateway.engine.start()
    except Exception as error:
        raise StartError(f"The engine {settings.engine} can't start: {error}") from error


class SecurityHeaders:
    """ASGI middleware: what every response tells a browser."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)


async def _nothing_here(request: Request) -> Response:
    """Below /v1 an unknown address is an error in JSON, not a page; and so is a known one with another method."""
    known = (route for route in request.app.routes if route.matches(request.scope)[0] is Match.PARTIAL)
    if allowed := {method for route in known for method in route.methods if method != "HEAD"}:
        raise errors.WrongMethod(allowed)
    raise errors.NotFound("There is nothing at this address.")
