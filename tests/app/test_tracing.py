from __future__ import annotations

import sys
from pathlib import Path

import httpx2
import pytest

from app.main import StartError, create_app
from app.tenants.terms import CALLER, TenantId
from app.tracing import Tracing
from tests.app.serving import IsolatedSettings, scripted

pytest.importorskip("opentelemetry.sdk", reason="needs the extra `otel`")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse


async def test_a_span_tells_route_status_and_tenant_and_joins_the_callers_trace() -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    async def answer(request: Request) -> PlainTextResponse:
        request.scope[CALLER] = TenantId("tn_1", "acme")
        return PlainTextResponse(await request.body(), status_code=201)

    app = Starlette()
    app.add_route("/v1/{what}", answer, methods=["POST"])
    app.add_middleware(Tracing, provider=provider)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as http:
        await http.post("/v1/x", content=b"my secret", headers={"traceparent": parent})
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 201
    assert span.attributes["paceline.tenant"] == "tn_1"
    assert f"{span.context.trace_id:032x}" == parent.split("-")[1]
    assert "my secret" not in span.to_json()


def test_without_the_packages_the_gateway_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    settings = IsolatedSettings(data_dir=tmp_path, otlp_endpoint="http://127.0.0.1:4318/v1/traces")
    with pytest.raises(StartError, match=r"paceline\[otel\]"):
        create_app(settings, scripted())
