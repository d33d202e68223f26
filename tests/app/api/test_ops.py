"""The operator's view: who may see it, what it shows, and that it holds nothing that anybody wrote."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
from websockets.asyncio.client import connect

from tests.app.serving import MODEL, Running, Steps, scripted, serving, until

ADMIN = "a-key-of-the-operator"
HEADERS = {"Authorization": f"Bearer {ADMIN}"}


async def test_without_the_admin_key_it_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path) as gateway, httpx2.AsyncClient() as client:
        answer = await client.get(f"{gateway.url}/admin/overview", headers=HEADERS)
        assert answer.status_code == 403
        assert "PACELINE_ADMIN_KEY" in answer.json()["error"]["message"]
    async with serving(tmp_path, admin_key=ADMIN) as gateway, httpx2.AsyncClient() as client:
        for headers in ({}, gateway.headers, {"Authorization": "Bearer wrong"}, {"Authorization": ADMIN}):
            for address in ("overview", "events"):
                assert (await client.get(f"{gateway.url}/admin/{address}", headers=headers)).status_code == 401
        assert "Paceline: operations" in (await client.get(f"{gateway.url}/ops")).text


async def test_it_shows_the_streams_that_run_and_none_of_their_text(tmp_path: Path) -> None:
    steps = Steps()
    engine = scripted(40, step_s=0.01, sleep=steps.wait)
    async with (
        serving(tmp_path, engine, steps=steps, admin_key=ADMIN) as gateway,
        httpx2.AsyncClient() as client,
        connect(gateway.url.replace("http", "ws") + "/v1/verify", subprotocols=["paceline.v1.json"]) as socket,  # type: ignore[list-item]
    ):
        await _ask(socket, gateway, "a secret question")
        steps.allow(3)
        await until(lambda: any(len(held.generation.ledger) >= 2 for held in gateway.gateway.streams))
        picture = (await client.get(f"{gateway.url}/admin/overview", headers=HEADERS)).json()
        (stream,) = picture["streams"]
        assert stream["kind"] == "device"
        assert stream["length"] >= 2
        assert stream["prompt"] > 0
        assert picture["streams_total"] == 1
        assert picture["load"]["running"] == 1
        assert picture["load"]["last_step"][0] >= 1
        assert "secret" not in json.dumps(picture)
        body = {"model": MODEL, "messages": [{"role": "user", "content": "a secret question"}]}
        asked = asyncio.create_task(
            client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=gateway.headers)
        )
        await until(lambda: bool(gateway.gateway.answers))
        picture = (await client.get(f"{gateway.url}/admin/overview", headers=HEADERS)).json()
        assert {stream["kind"] for stream in picture["streams"]} == {"device", "http"}
        assert {stream["tenant"] for stream in picture["streams"]} == {"default"}
        steps.run_free()
        await asked
        assert gateway.key not in json.dumps(picture)


async def test_a_picture_comes_each_second_and_errors_are_in_it(tmp_path: Path) -> None:
    async with serving(tmp_path, admin_key=ADMIN) as gateway, httpx2.AsyncClient() as client:
        async with connect(
            gateway.url.replace("http", "ws") + "/v1/verify",
            subprotocols=["paceline.v1.json"],  # type: ignore[list-item]
        ) as socket:
            await socket.send(json.dumps(["hello", 1, "sk-wrong"]))
            await socket.recv()
        pictures = []
        async with client.stream("GET", f"{gateway.url}/admin/events", headers=HEADERS) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    pictures.append(json.loads(line[5:]))
                if len(pictures) == 2:
                    break
        assert pictures[1]["at"] > pictures[0]["at"]
        assert pictures[1]["faults"][0]["code"] == "invalid_api_key"


async def _ask(socket: Any, gateway: Running, question: str) -> None:
    await socket.send(json.dumps(["hello", 1, gateway.key]))
    await socket.recv()
    message = {"role": "user", "content": question}
    await socket.send(json.dumps(["open", 1, MODEL, [], [message], [], {"temperature": 0}, 20]))
