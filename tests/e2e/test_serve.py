"""The device's endpoint beside the gateway's: the same answers, and which path they took."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from bench.link import Link
from bench.wan import Wan
from edge.drafters.ngram import NgramDrafter
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.errors import Unreachable
from edge.privacy import DisclosureLog
from edge.protocol.frames import Message, Sampling
from edge.route import Question, open_route
from edge.script import Script, ScriptVocabulary
from edge.terminal import PlainAnswer, SilentAnswer
from tests.e2e.endpoint import device_settings, endpoint
from tests.e2e.gateway import Gateway

SCRIPT = Script(ScriptVocabulary())
DRAFTER = ScriptedDrafter(SCRIPT, right_with(0.7))
SAY = [{"role": "user", "content": "say something"}]
CHAT: dict[str, Any] = {"model": "scripted", "messages": SAY, "max_tokens": 24, "seed": 5}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("chat/completions", CHAT),
    "greedy": ("chat/completions", CHAT | {"temperature": 0}),
    "choices": ("chat/completions", CHAT | {"n": 3}),
    "stop": ("chat/completions", CHAT | {"stop": ["e", "th"], "max_tokens": 60}),
    "logprobs": ("chat/completions", CHAT | {"logprobs": True, "top_logprobs": 2}),
    "penalties": ("chat/completions", CHAT | {"presence_penalty": 1, "frequency_penalty": 0.5, "top_k": 20}),
    "schema": ("chat/completions", CHAT | {"response_format": {"type": "json_object"}, "max_tokens": 60}),
    "completion": ("completions", {"model": "scripted", "prompt": "once upon", "max_tokens": 20, "seed": 1}),
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path / "gateway", SCRIPT, step_s=0.001) as serving:
        yield serving


@asynccontextmanager
async def both(gateway: Gateway, state: Path, **options: Any) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """A client with the gateway's key, and the device's base URL."""
    settings = device_settings(state, gateway.url, gateway.key)
    async with (
        endpoint(settings, options.pop("drafter", DRAFTER), **options) as url,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {gateway.key}"}, timeout=30) as client,
    ):
        yield client, url


def comparable(body: dict[str, Any]) -> Any:
    """Without what differs between two askings: names, dates, and how many drafts there were."""
    usage = body.get("usage") or {}
    counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return body["choices"], counts, body["model"], body["object"]


def events(text: str) -> list[dict[str, Any]]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]


@pytest.mark.parametrize("name", BODIES)
async def test_the_device_answers_as_the_gateway_does(gateway: Gateway, tmp_path: Path, name: str) -> None:
    address, body = BODIES[name]
    async with both(gateway, tmp_path) as (client, url):
        there = await client.post(f"{gateway.url}/v1/{address}", json=body)
        here = await client.post(f"{url}/v1/{address}", json=body)
        assert here.status_code == there.status_code == 200, here.text
        assert here.headers["x-paceline-path"] == "hybrid"
        assert comparable(here.json()) == comparable(there.json())

        streamed = await client.post(f"{url}/v1/{address}", json=body | {"stream": True})
        assert streamed.headers["x-paceline-path"] == "hybrid"
        assert streamed.headers["content-type"].startswith("text/event-stream")
        for choice in there.json()["choices"]:
            mine = [c for e in events(streamed.text) for c in e["choices"] if c["index"] == choice["index"]]
            pieces = [c["delta"].get("content") or "" if "delta" in c else c["text"] for c in mine]
            assert "".join(pieces) == (choice["message"]["content"] if "message" in choice else choice["text"])
            assert mine[-1]["finish_reason"] == choice["finish_reason"]


async def test_responses_are_the_gateways_too(gateway: Gateway, tmp_path: Path) -> None:
    body = {"model": "scripted", "input": "say something", "max_output_tokens": 20, "temperature": 0, "store": False}
    async with both(gateway, tmp_path) as (client, url):
        there = await client.post(f"{gateway.url}/v1/responses", json=body)
        here = await client.post(f"{url}/v1/responses", json=body)
        streamed = await client.post(f"{url}/v1/responses", json=body | {"stream": True})
    assert here.headers["x-paceline-path"] == streamed.headers["x-paceline-path"] == "hybrid"
    assert there.status_code == here.status_code == 200, here.text
    texts = [answer.json()["output"][0]["content"][0]["text"] for answer in (there, here)]
    assert texts[0] == texts[1] != ""
    assert "event: response.incomplete" in streamed.text, "it ran into max_output_tokens"


@pytest.mark.parametrize(
    "fault",
    [
        {"temperature": 9},
        {"max_tokens": 0},
        {"messages": []},
        {"nonsense": 1},
        {"logit_bias": {"100000": 1}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    ],
)
async def test_faults_are_refused_in_the_gateways_words(
    gateway: Gateway, tmp_path: Path, fault: dict[str, Any]
) -> None:
    async with both(gateway, tmp_path) as (client, url):
        there = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT | fault)
        here = await client.post(f"{url}/v1/chat/completions", json=CHAT | fault)
    assert here.status_code == there.status_code == 400
    assert here.json() == there.json()


async def test_what_the_hybrid_path_cannot_do_the_gateway_does_and_the_header_says_why(
    gateway: Gateway, tmp_path: Path
) -> None:
    async with both(gateway, tmp_path) as (client, url):
        predicted = await client.post(
            f"{url}/v1/chat/completions", json=CHAT | {"prediction": {"type": "content", "content": "the"}}
        )
        assert predicted.status_code == 200
        assert predicted.headers["x-paceline-path"] == "cloud"
        assert "prediction" in predicted.headers["x-paceline-why"]
        unknown = await client.post(f"{url}/v1/chat/completions", json=CHAT | {"model": "other"})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    async with both(gateway, tmp_path, drafter=NgramDrafter()) as (client, url):
        without = await client.post(f"{url}/v1/chat/completions", json=CHAT)
        assert without.headers["x-paceline-path"] == "cloud"
        assert "no tokenizer" in without.headers["x-paceline-why"]


async def test_the_models_are_the_gateways(gateway: Gateway, tmp_path: Path) -> None:
    async with both(gateway, tmp_path) as (client, url):
        assert (await client.get(f"{url}/v1/models")).json() == (await client.get(f"{gateway.url}/v1/models")).json()
        assert (await client.get(f"{url}/v1/models/other")).status_code == 404
        assert (await client.get(f"{url}/health")).json() == {"status": "ok"}
        assert (await client.get(f"{url}/v1/keys")).status_code == 404


@asynccontextmanager
async def no_websockets(port: int) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A network that lets HTTP through to `port` and hangs up on WebSockets. And the first lines that it saw."""
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head.splitlines()[0])
        if b"/v1/verify" not in seen[-1]:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
            there_writer.write(head)
            await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer), return_exceptions=True)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], seen


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def test_without_a_socket_answers_come_over_http_and_the_socket_rests(gateway: Gateway, tmp_path: Path) -> None:
    async with no_websockets(gateway.port) as (port, seen):
        settings = device_settings(tmp_path, f"http://127.0.0.1:{port}", gateway.key)
        async with endpoint(settings, DRAFTER) as url, httpx2.AsyncClient(timeout=30) as client:
            first = await client.post(f"{url}/v1/chat/completions", json=CHAT)
            second = await client.post(f"{url}/v1/chat/completions", json=CHAT)
    assert [r.headers["x-paceline-path"] for r in (first, second)] == ["cloud", "cloud"]
    assert first.headers["x-paceline-why"].startswith("hybrid: no gateway at")
    assert second.headers["x-paceline-why"] == "hybrid: failed a moment ago"
    assert first.json()["choices"] == second.json()["choices"]
    assert sum(b"/v1/verify" in line for line in seen) == 1, "the second request didn't wait for the socket again"


async def test_without_a_gateway_the_device_answers_alone_if_it_may(tmp_path: Path) -> None:
    settings = device_settings(tmp_path, "http://127.0.0.1:9", "k")
    async with endpoint(settings, DRAFTER, local=True) as url, httpx2.AsyncClient(timeout=30) as client:
        alone = await client.post(f"{url}/v1/chat/completions", json=CHAT | {"temperature": 0})
        assert alone.headers["x-paceline-path"] == "local"
        assert alone.json()["usage"]["completion_tokens"] == 24
        text = await client.post(f"{url}/v1/chat/completions", json=CHAT | {"stop": ["e"], "stream": True})
        assert events(text.text)[-1]["choices"][0]["finish_reason"] == "stop"
    async with endpoint(settings, DRAFTER) as url, httpx2.AsyncClient(timeout=30) as client:
        refused = await client.post(f"{url}/v1/chat/completions", json=CHAT)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "no_path"
        assert (await client.get(f"{url}/v1/models")).status_code == 503


async def test_behind_a_sign_in_page_the_device_answers_alone_and_says_why(tmp_path: Path) -> None:
    async def portal(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 7\r\n\r\nsign in")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(portal, "127.0.0.1", 0)
    settings = device_settings(tmp_path, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "k")
    async with server, endpoint(settings, DRAFTER, local=True) as url, httpx2.AsyncClient(timeout=30) as client:
        answered = await client.post(f"{url}/v1/chat/completions", json=CHAT | {"temperature": 0})
        assert answered.headers["x-paceline-path"] == "local"
        assert answered.headers["x-paceline-why"].count("answers with a web page") == 2
        assert (await client.get(f"{url}/v1/models")).status_code == 503


async def test_in_privacy_local_nothing_leaves(gateway: Gateway, tmp_path: Path) -> None:
    async with both(gateway, tmp_path, local=True) as (client, url):
        body = CHAT | {"paceline": {"privacy": "local"}}
        assert (await client.post(f"{url}/v1/chat/completions", json=body)).headers["x-paceline-path"] == "local"
        refused = await client.post(f"{url}/v1/chat/completions", json=CHAT | {"paceline": {"privacy": "redacted"}})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "paceline")
    assert not (tmp_path / "disclosures.jsonl").exists()


async def test_a_wish_nobody_knows_is_refused(gateway: Gateway, tmp_path: Path) -> None:
    async with both(gateway, tmp_path) as (client, url):
        for wish in ({"policy": "never"}, {"colour": "red"}, 7):
            refused = await client.post(f"{url}/v1/chat/completions", json=CHAT | {"paceline": wish})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "paceline")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_the_stream_in_the_cloud(tmp_path: Path, stream: bool) -> None:
    async with (
        Gateway(tmp_path / "gateway", SCRIPT, step_s=0.01) as gateway,
        both(gateway, tmp_path) as (client, url),
    ):
        body = CHAT | {"max_tokens": 1500, "stream": stream}
        asking = asyncio.create_task(_read(client, f"{url}/v1/chat/completions", body))
        await _until(lambda: gateway.engine.load().running == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await _until(lambda: gateway.engine.load().running == 0)


async def _read(client: httpx2.AsyncClient, url: str, body: dict[str, Any]) -> None:
    async with client.stream("POST", url, json=body) as response:
        async for _ in response.aiter_bytes():
            pass


async def _until(true: Any) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 (the engine tells nobody)
            await asyncio.sleep(0.005)


async def test_web_pages_are_kept_out(gateway: Gateway, tmp_path: Path) -> None:
    async with both(gateway, tmp_path) as (client, url):
        rebound = await client.post(f"{url}/v1/chat/completions", json=CHAT, headers={"Host": "evil.example"})
        assert (rebound.status_code, rebound.json()["error"]["code"]) == (403, "forbidden_host")
        simple = await client.post(
            f"{url}/v1/chat/completions", content=json.dumps(CHAT), headers={"Content-Type": "text/plain"}
        )
        assert simple.status_code == 415


async def test_a_local_key_is_asked_for(gateway: Gateway, tmp_path: Path) -> None:
    async with both(gateway, tmp_path, key="mine") as (client, url):
        refused = await client.post(f"{url}/v1/chat/completions", json=CHAT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        mine = {"Authorization": "Bearer mine"}
        assert (await client.post(f"{url}/v1/chat/completions", json=CHAT, headers=mine)).status_code == 200


async def test_a_cut_network_does_not_show_in_an_answer(gateway: Gateway, tmp_path: Path) -> None:
    async with Wan(gateway.port, Link(rtt_s=0.004)) as wan:
        settings = device_settings(tmp_path, f"http://127.0.0.1:{wan.port}", gateway.key)
        async with endpoint(settings, DRAFTER) as url, httpx2.AsyncClient(timeout=30) as client:
            whole = (await client.post(f"{url}/v1/chat/completions", json=CHAT | {"max_tokens": 80})).json()
            text = ""
            body = CHAT | {"max_tokens": 80, "stream": True}
            async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                        if len(text) in (10, 11, 30, 31):
                            wan.cut()
                            wan.mend()
    assert text == whole["choices"][0]["message"]["content"]


async def test_openais_client_runs_against_the_device(gateway: Gateway, tmp_path: Path) -> None:
    async with both(gateway, tmp_path) as (_, url):
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused")
        raw = await client.chat.completions.with_raw_response.create(
            model="scripted",
            messages=[{"role": "user", "content": "say something"}],
            max_tokens=12,
            seed=3,
            extra_body={"paceline": {"policy": "hold", "draft_sampling": "top1"}},
        )
        assert raw.headers["x-paceline-path"] == "hybrid"
        completion = raw.parse()
        stream = await client.chat.completions.create(
            model="scripted",
            messages=[{"role": "user", "content": "say something"}],
            max_tokens=12,
            seed=3,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        await client.close()
    assert (
        "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == completion.choices[0].message.content
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12


async def test_another_method_is_answered_as_the_gateway_answers_it(gateway: Gateway, tmp_path: Path) -> None:
    async with both(gateway, tmp_path) as (client, url):
        there = await client.get(f"{gateway.url}/v1/chat/completions")
        here = await client.get(f"{url}/v1/chat/completions")
        assert (here.status_code, here.headers["Allow"]) == (there.status_code, there.headers["Allow"]) == (405, "POST")
        assert here.json() == there.json()


async def test_without_websockets_chat_goes_on_over_http(gateway: Gateway, tmp_path: Path) -> None:
    warnings: list[str] = []
    question = Question(messages=(Message("user", "hi"),), sampling=Sampling(temperature=0), max_tokens=20)
    shown = io.StringIO()
    async with no_websockets(gateway.port) as (port, _):
        settings = device_settings(tmp_path, f"http://127.0.0.1:{port}", gateway.key)
        async with open_route(settings, DRAFTER, warnings.append) as route:
            with PlainAnswer(shown) as answer:
                told = await route.ask(question, answer)
        draft_only = device_settings(tmp_path, f"http://127.0.0.1:{port}", gateway.key, privacy="draft_only")
        with pytest.raises(Unreachable):
            async with open_route(draft_only, DRAFTER, warnings.append):
                pass
    async with open_route(device_settings(tmp_path, gateway.url, gateway.key), DRAFTER, warnings.append) as route:
        hybrid = await route.ask(question, SilentAnswer())
    assert told.text == hybrid.text == shown.getvalue().removesuffix("\n") != ""
    (warning,) = warnings
    assert warning.startswith("no gateway at")
    assert "over HTTP, without drafts" in warning
    sent = [one.sent.route for one in DisclosureLog(settings.disclosures()).read()]
    assert sent == ["cloud-only", "hybrid"]
