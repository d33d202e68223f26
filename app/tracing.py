"""OpenTelemetry spans: one for each request and socket, with route, status and tenant; never what anybody wrote.

Off unless PACELINE_OTLP_ENDPOINT is set; the packages (extra `otel`) are imported only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.tenants.terms import caller

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


def exporting(endpoint: str) -> TracerProvider:
    """Spans go to `endpoint` in batches (OTLP over HTTP), the last at the process's exit. Raises ImportError."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "paceline-gateway"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider


class Tracing:
    """ASGI middleware. A caller's `traceparent` header makes the span a part of the caller's trace."""

    def __init__(self, app: ASGIApp, *, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._app = app
        self._tracer = provider.get_tracer("paceline")
        self._kind = SpanKind.SERVER
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope.get("method", "WEBSOCKET")
        context = self._propagator.extract(carrier)
        with self._tracer.start_as_current_span(
            method, context=context, kind=self._kind, record_exception=False, set_status_on_exception=True
        ) as span:

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            try:
                await self._app(scope, receive, sending)
            finally:
                route = getattr(scope.get("route"), "path", "unknown")
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
                if (tenant := caller(scope)) is not None:
                    span.set_attribute("paceline.tenant", tenant.id)
