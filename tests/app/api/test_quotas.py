"""Quotas and terms as clients meet them, on HTTP and WebSocket; and that a tenant reaches nothing of another's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from app.tenants.terms import Terms
from edge.protocol import frames
from tests.app.api.peer import greeted, opening, reference
from tests.app.serving import MODEL, Running, Steps, scripted, serving

ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}


async def key_of(running: Running, name: str = "acme", **terms: Any) -> str:
    await running.gateway.tenants.create_tenant(name, Terms(**terms))
    return await running.gateway.tenants.create_key(name, "")


def client(running: Running, key: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=f"{running.url}/v1", headers={"Authorization": f"Bearer {key}"})


async def test_every_answer_says_how_the_tenant_stands(running: Running) -> None:
    key = await key_of(running, requests_per_minute=2, tokens_per_minute=6000)
    async with client(running, key) as http:
        answer = await http.post("/chat/completions", json=ASK)
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-requests"] == "1"
        assert answer.headers["x-ratelimit-reset-requests"].endswith("s")
        used = answer.json()["usage"]["total_tokens"]
        # The bucket refills by 100 tokens a second meanwhile.
        assert 6000 - used <= int(answer.headers["x-ratelimit-remaining-tokens"]) <= 6000
        await http.post("/chat/completions", json=ASK)
        refused = await http.post("/chat/completions", json=ASK)
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(refused.headers["Retry-After"]) <= 30
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    async with client(running, running.key) as http:
        answer = await http.post("/chat/completions", json=ASK)
    assert answer.status_code == 200, "another's quota is its own"
    assert not [name for name in answer.headers if name.startswith("x-ratelimit")], "it has none"


async def test_openais_client_sees_a_rate_limit_as_one(running: Running) -> None:
    key = await key_of(running, requests_per_minute=1)
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0) as ai:
        await ai.chat.completions.create(**ASK)
        with pytest.raises(openai.RateLimitError):
            await ai.chat.completions.create(**ASK)


async def test_a_long_answer_costs_its_tenants_quota_while_it_runs(tmp_path: Path) -> None:
    steps = Steps()
    async with serving(tmp_path, scripted(sleep=steps.wait, step_s=1e-3), steps=steps) as running:
        key = await key_of(running, tokens_per_minute=60)
        async with greeted(running, key=key) as peer:
            await peer.send(opening(1, max_tokens=200))
            await peer.expect(frames.Opened)
            steps.allow(120)
            received = 0
            while received < 100:
                received += len((await peer.expect(frames.Commit)).tokens)
            await peer.send(opening(2))
            refused = await peer.expect(frames.Error)
    assert (refused.stream, refused.code, refused.final) == (2, "rate_limited", True)
    assert refused.retry_after_s is not None
    assert refused.retry_after_s > 30


async def test_streams_of_both_kinds_count_together(tmp_path: Path) -> None:
    steps = Steps()
    async with serving(tmp_path, scripted(sleep=steps.wait, step_s=1e-3), steps=steps) as running:
        key = await key_of(running, concurrent_streams=1)
        async with greeted(running, key=key) as peer, client(running, key) as http:
            await peer.send(opening(1))
            await peer.expect(frames.Opened)
            refused = await http.post("/chat/completions", json=ASK)
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
            await peer.send(opening(2))
            assert (await peer.expect(frames.Error)).code == "rate_limited"
            await peer.send(frames.Cancel(1))
            steps.run_free()
            await peer.expect(frames.Finish, stream=1)
            assert (await http.post("/chat/completions", json=ASK)).status_code == 200


async def test_drafts_over_the_quota_change_neither_text_nor_pace(running: Running) -> None:
    key = await key_of(running, draft_tokens_per_minute=4)
    whole = reference(running)
    async with greeted(running, key=key) as peer:
        await peer.send(opening(1), frames.Draft(1, 0, 0, tuple(whole[:4])), frames.Draft(1, 0, 4, tuple(whole[4:8])))
        tokens, finish = await peer.output(1)
    assert tokens == whole
    assert finish.usage.drafted <= 4
    async with httpx2.AsyncClient(base_url=running.url) as http:
        metrics = (await http.get("/metrics")).text
    assert 'paceline_tokens_total{tenant="acme",what="over_quota"} 4.0' in metrics


async def test_a_model_that_a_tenant_may_not_use_is_not_there(running: Running) -> None:
    key = await key_of(running, models=("another",))
    async with client(running, key) as http:
        assert (await http.get("/models")).json()["data"] == []
        assert (await http.get(f"/models/{MODEL}")).status_code == 404
        answer = await http.post("/chat/completions", json=ASK)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    async with greeted(running, key=key) as peer:
        await peer.send(opening(1))
        assert (await peer.expect(frames.Error)).code == "unknown_model"


async def test_a_policy_that_a_tenant_may_not_use_is_refused_and_the_default_gives_way(running: Running) -> None:
    key = await key_of(running, policies=("hold", "sync"))
    async with greeted(running, key=key) as peer:
        await peer.send(opening(1, policy="eager"))
        refused = await peer.expect(frames.Error)
        assert refused.code == "invalid_request"
        assert "hold, sync" in refused.message
        await peer.send(opening(2))
        await peer.expect(frames.Opened)
        (stream,) = running.gateway.streams
        assert stream.generation.request.policy == "hold"


async def test_the_weight_reaches_the_engine(running: Running) -> None:
    key = await key_of(running, weight=3.0)
    async with greeted(running, key=key) as peer:
        await peer.send(opening(1))
        await peer.expect(frames.Opened)
        (stream,) = running.gateway.streams
    assert stream.generation.request.weight == 3.0


async def test_another_tenants_stream_can_be_neither_resumed_nor_ended_nor_fenced(tmp_path: Path) -> None:
    steps = Steps()
    async with serving(tmp_path, scripted(sleep=steps.wait, step_s=1e-3), steps=steps) as running:
        stranger = await key_of(running, "stranger")
        async with greeted(running) as owner, greeted(running, key=stranger) as other:
            await owner.send(opening(1))
            token = (await owner.expect(frames.Opened)).resume
            await other.send(frames.Resume(7, token, 0))
            refused = await other.expect(frames.Error)
            await other.send(frames.Resume(8, "0123456789abcdef.no-such-stream", 0))
            unknown = await other.expect(frames.Error)
            assert (refused.code, refused.message) == (unknown.code, unknown.message), "it can't tell which exist"
            await other.send(frames.Cancel(1))
            assert (await other.expect(frames.Error)).code == "unknown_stream"
            steps.run_free()
            tokens, finish = await owner.output(1)
    assert tokens == reference(running)
    assert finish.reason == "length"


async def test_usage_counts_each_tenants_own_while_streams_still_run(tmp_path: Path) -> None:
    steps = Steps()
    async with serving(tmp_path, scripted(sleep=steps.wait, step_s=1e-3), steps=steps, usage_flush_s=0.05) as running:
        gateway = running.gateway
        key = await key_of(running)
        async with greeted(running, key=key) as peer:
            await peer.send(opening(1))
            await peer.expect(frames.Opened)
            steps.allow(10)
            received = 0
            while received < 8:
                received += len((await peer.expect(frames.Commit)).tokens)
            stored: list[int] = []

            async def flushed() -> bool:
                stored[:] = [row.counts.completion for row in await gateway.repository.usage(tenant="acme")]
                return stored != [] and stored[0] >= 8

            async with asyncio.timeout(10):
                while not await flushed():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            steps.run_free()
            await peer.expect(frames.Finish)
        gateway.accounts.settle()
        await gateway.usage.flush()
        assert [(row.tenant, row.counts.completion) for row in await gateway.repository.usage()] == [("acme", 30)]
