"""The operator's endpoints: closed without an admin key; with it, replicas are listed and drained."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.engine.pool import Pool
from edge.script import ScriptVocabulary
from tests.app.engine.local_host import LocalHost
from tests.app.serving import MODEL, Running, scripted, serving

KEY = "admin-key-of-the-test"
HEADERS = {"Authorization": f"Bearer {KEY}"}


def pool() -> Pool:
    return Pool(LocalHost(lambda: scripted(step_s=0.002)), lambda: nullcontext(ScriptVocabulary()), replicas=2)


async def test_without_an_admin_key_the_admin_endpoints_are_closed(running: Running) -> None:
    async with httpx2.AsyncClient(base_url=running.url) as http:
        answer = await http.get("/admin/replicas", headers=HEADERS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert "PACELINE_ADMIN_KEY" in answer.json()["error"]["message"]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}])
async def test_a_wrong_admin_key_is_refused_and_so_is_a_tenants(tmp_path: Path, headers: dict[str, str]) -> None:
    async with serving(tmp_path, admin_key=KEY) as running, httpx2.AsyncClient(base_url=running.url) as http:
        assert (await http.get("/admin/replicas", headers=headers)).status_code == 401
        assert (await http.get("/admin/replicas", headers=running.headers)).status_code == 401
        assert (await http.get("/admin/replicas", headers=HEADERS)).json() == []
        assert (await http.post("/admin/replicas/0/drain", json={}, headers=HEADERS)).status_code == 404


async def test_a_drained_replica_is_empty_and_its_stream_goes_on_elsewhere(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "x"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 400, "seed": 1}
    async with (
        serving(tmp_path, pool(), admin_key=KEY) as running,
        httpx2.AsyncClient(base_url=running.url, timeout=30) as http,
    ):
        whole = (await http.post("/v1/chat/completions", json=body, headers=running.headers)).json()
        answering = asyncio.create_task(http.post("/v1/chat/completions", json=body, headers=running.headers))
        while not any(one["streams"] for one in (await http.get("/admin/replicas", headers=HEADERS)).json()):
            assert not answering.done()
        for index in (0, 1):
            drained = await http.post(f"/admin/replicas/{index}/drain", json={"within_s": 0}, headers=HEADERS)
            assert (drained.status_code, drained.json()["streams"]) == (200, 0)
        answer = (await answering).json()
        assert answer["choices"] == whole["choices"]


async def test_the_command_line_lists_and_drains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_ADMIN_KEY", KEY)
    async with serving(tmp_path, pool(), admin_key=KEY) as running:

        def run(*arguments: str) -> Any:
            return CliRunner().invoke(app, ["replicas", *arguments, "--url", running.url])

        listed = await asyncio.to_thread(run, "list")
        assert listed.output.count("up") == 2
        drained = await asyncio.to_thread(run, "drain", "1", "--within", "0")
        assert drained.exit_code == 0
        assert drained.output.endswith("Replica 1 is empty and starts anew.\n")
        refused = await asyncio.to_thread(run, "drain", "7")
        assert refused.exit_code == 2
        assert "no replica 7" in refused.output
