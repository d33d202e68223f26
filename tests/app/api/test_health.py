"""The endpoints around: health, models, metrics, the page, and what every response carries."""

from __future__ import annotations

from pathlib import Path

import httpx2
import openai
import pytest

from tests.app.api.peer import greeted, opening
from tests.app.serving import MODEL, Running, serving


async def test_ready_until_it_shuts_down(running: Running) -> None:
    async with httpx2.AsyncClient(base_url=running.url) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/readyz")).status_code == 200
        running.gateway.drain()
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["problems"]) == (503, {"gateway": "shutting down"})
        assert (await http.get("/healthz")).status_code == 200


async def test_models_are_listed_and_found(running: Running) -> None:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).owned_by == "paceline"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-9")


async def test_metrics_count_what_went_through(running: Running) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 7}
    async with httpx2.AsyncClient(base_url=running.url) as http:
        assert (await http.post("/v1/chat/completions", json=body, headers=running.headers)).status_code == 200
        async with greeted(running) as peer:
            await peer.send(opening(1))
            await peer.output(1)
        text = (await http.get("/metrics")).text
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}
    assert values['paceline_tokens_total{tenant="default",what="completion"}'] == 37
    assert values['paceline_requests_total{route="/v1/chat/completions",status="200",tenant="default"}'] == 1
    assert values['paceline_streams_opened_total{kind="edge"}'] == 1
    assert values['paceline_streams_finished_total{reason="length"}'] == 2
    assert values['paceline_ttft_seconds_count{kind="edge",tenant="default"}'] == 1
    assert values['paceline_itl_seconds_count{kind="chat",tenant="default"}'] == 1
    assert values['paceline_socket_bytes_total{direction="up",tenant="default"}'] > 0
    assert values["paceline_streams_held"] == 1
    assert values["paceline_step_seconds_count"] > 0
    assert values["paceline_queue_seconds_count"] == 2


async def test_the_page_is_served_isolated_and_unknown_api_addresses_are_json(tmp_path: Path) -> None:
    static = tmp_path / "static"
    static.mkdir()
    (static / "index.html").write_text("<title>hello</title>")
    async with (
        serving(tmp_path / "data", static_dir=static) as running,
        httpx2.AsyncClient(base_url=running.url) as http,
    ):
        page = await http.get("/")
        assert "hello" in page.text
        assert page.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert page.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert "script-src 'self' 'wasm-unsafe-eval';" in page.headers["Content-Security-Policy"]
        assert page.headers["X-Request-Id"].startswith("req-")
        nothing = await http.get("/v1/nothing")
        assert (nothing.status_code, nothing.json()["error"]["code"]) == (404, "not_found")
