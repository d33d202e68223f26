"""What a peer sends stays data: in headers, logs, paths, addresses, templates and exports."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import pytest_asyncio

from edge.drafters.ngram import NgramDrafter
from edge.protocol import frames
from tests.app.api.peer import greeted
from tests.app.security.log import captured
from tests.app.serving import MODEL, Running, serving
from tests.e2e.endpoint import device_settings, endpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")
CANARY = "root:x:0:0"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


async def raw(url: str, data: bytes) -> bytes:
    """What a gateway answers to these bytes, to the end of the connection."""
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    writer.write(data)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


def get(target: str, *lines: str) -> bytes:
    return "\r\n".join((f"GET {target} HTTP/1.1", "Host: x", "Connection: close", *lines, "", "")).encode()


# Headers


@pytest.mark.parametrize(
    "line",
    [
        "X-Evil: a\rSet-Cookie: b",
        "X-Evil: a\nSet-Cookie: b",
        "X-Evil: a\x00b",
        "X Evil: a",
        "Authorization: Bearer a\x0bb",
    ],
)
async def test_a_header_that_breaks_its_line_is_refused(running: Running, line: str) -> None:
    answer = await raw(running.url, get("/v1/models", line))
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401"))
    assert b"set-cookie" not in answer.lower()


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: \x0bchunked",),
        ("Content-Length: +5",),
    ],
)
async def test_a_body_of_two_lengths_is_never_two_requests(running: Running, lines: tuple[str, ...]) -> None:
    head = "\r\n".join(("POST /v1/tickets HTTP/1.1", "Host: x", *lines, "", ""))
    smuggled = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = await raw(running.url, head.encode() + smuggled)
    assert b'"ok"' not in answer


async def test_nothing_of_a_request_comes_back_in_a_header(running: Running) -> None:
    evil = "evil%0d%0aSet-Cookie:%20a=b"
    async with httpx2.AsyncClient(base_url=running.url, headers=running.headers) as client:
        for path in (f"/v1/models/{evil}", f"/{evil}", f"/v1/{evil}", f"/js/{evil}?{evil}", f"/ops/{evil}"):
            answer = await client.get(path)
            assert answer.status_code == 404
            assert "evil" not in str(answer.headers).lower()
            assert "set-cookie" not in answer.headers


# Logs


@pytest.mark.parametrize("style", ["json", "console"])
async def test_a_peer_can_neither_forge_a_line_of_the_log_nor_drive_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    forged = "\n2026-01-01 [info] forged=1\x1b[2J\x07"
    with captured(style, monkeypatch) as text:
        async with serving(tmp_path) as running, httpx2.AsyncClient(base_url=running.url) as client:
            headers = running.headers | {"user-agent": "forged=1"}
            body = {"model": f"x{forged}", "messages": [{"role": "user", "content": forged}]}
            await client.post("/v1/chat/completions", json=body, headers=headers)
            await client.get("/%0aforged=1%1b[2J", headers=headers)
            await client.get("/v1/models/%0aforged=1", headers=headers)
            await client.get("/?%0aforged=1", headers={"authorization": "Bearer forged=1"})
            await raw(running.url, b"FORGED=1 / HTTP/1.1\r\n\r\nforged=1")
            async with greeted(running) as peer:
                await peer.send(frames.Open(1, forged, prompt=(1,)), frames.Resume(2, forged))
                await peer.socket.send(forged.encode())
                await peer.expect(frames.Error, stream=2)
    log = text.getvalue()
    assert "request" in log
    assert "forged" not in log.lower()
    assert "\x07" not in log


# Paths

ESCAPES = [
    "/../app/config.py",
    "/..%2fapp/config.py",
    "/%2e%2e/app/config.py",
    "/%2e%2e%2fapp%2fconfig.py",
    "/js/../../app/config.py",
    "/js/..%2f..%2fapp/config.py",
    "/..%5capp%5cconfig.py",
    "//etc/passwd",
    "/%2fetc/passwd",
    "/js//../../../../../../etc/passwd",
    "/js/%00.js",
    "/js/page.js%00.html",
    "/%c0%ae%c0%ae/app/config.py",
    "/.%2e/app/config.py",
    "/" + "a" * 5000,
]


@pytest.mark.parametrize("target", ESCAPES)
async def test_no_path_leads_out_of_the_pages(running: Running, target: str) -> None:
    answer = await raw(running.url, get(target))
    assert answer.split()[1] in (b"404", b"400", b"405"), answer[:200]
    assert b"INSECURE_SECRET" not in answer
    assert CANARY.encode() not in answer


async def test_a_link_out_of_the_pages_is_not_followed(tmp_path: Path) -> None:
    pages, outside = tmp_path / "pages", tmp_path / "outside.txt"
    pages.mkdir()
    outside.write_text(CANARY)
    (pages / "link.txt").symlink_to(outside)
    async with serving(tmp_path / "data", static_dir=pages) as running, httpx2.AsyncClient() as client:
        assert (await client.get(f"{running.url}/link.txt")).status_code == 404


# Addresses: no name makes anybody open a connection or a file


@contextlib.asynccontextmanager
async def listener() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that notes who comes."""
    heard: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


async def test_no_name_of_a_model_and_no_reference_fetches_anything(running: Running) -> None:
    async with listener() as (port, heard), httpx2.AsyncClient(base_url=running.url, headers=running.headers) as client:
        there = f"http://127.0.0.1:{port}/x"
        ask: dict[str, Any] = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "x"}]}
        for name in (there, f"127.0.0.1:{port}/x", "file:///etc/passwd", "../../etc/passwd", "/etc/passwd", "hf://a/b"):
            answer = await client.post("/v1/chat/completions", json=ask | {"model": name})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
            assert (await client.get(f"/v1/models/{name}")).status_code == 404
            async with greeted(running) as peer:
                await peer.send(frames.Open(1, name, prompt=(1,)))
                assert (await peer.expect(frames.Error)).code == "unknown_model"
        image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": there}}]}
        assert (await client.post("/v1/chat/completions", json=ask | {"messages": [image]})).status_code == 400
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": there}}}
        assert (await client.post("/v1/chat/completions", json=ask | {"response_format": form})).status_code == 400
        for schema in ({"$ref": there}, {"$id": there, "$ref": "y"}, {"$schema": there, "type": "string"}):
            async with greeted(running) as peer:
                sampling = frames.Sampling(grammar=frames.Grammar("json_schema", json.dumps(schema)))
                await peer.send(frames.Open(1, MODEL, prompt=(1,), max_tokens=4, sampling=sampling))
                while not isinstance(await peer.frame(), frames.Error | frames.Finish):
                    pass
        assert heard == []


async def test_with_the_devices_key_nothing_but_models_is_fetched(running: Running, tmp_path: Path) -> None:
    """Whoever reaches the device's endpoint speaks to the gateway with the device's key."""
    settings = device_settings(tmp_path / "state", running.url, running.key)
    async with endpoint(settings, NgramDrafter()) as url:
        host = "Host: 127.0.0.1"
        for target in (
            "/v1/models/../../metrics",
            "/v1/models/..%2f..%2fmetrics",
            "/v1/models/%2e%2e/%2e%2e/metrics",
            "/v1/models/../usage",
            "/v1/models/x/../../usage",
        ):
            answer = await raw(url, get(target).replace(b"Host: x", host.encode()))
            assert answer.split()[1] == b"404", (target, answer[:300])
            assert b"paceline_" not in answer
        fine = await raw(url, get(f"/v1/models/{MODEL}").replace(b"Host: x", host.encode()))
        assert fine.split()[1] == b"200"
