"""The OpenAI endpoint, asked by OpenAI's own client and by plain HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from app.tenants.repository import Repository, open_database
from edge.protocol.frames import Message
from tests.app.serving import MODEL, IsolatedSettings, Running, Steps, scripted, serving, until

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ASK: list[Any] = [{"role": "user", "content": "Say something."}]


@pytest.fixture
async def client(running: Running) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0) as made:
        yield made


def greedy(running: Running, count: int, messages: list[Message] | None = None) -> bytes:
    """What the script says, without an engine."""
    vocabulary = running.script.vocabulary
    prompt = vocabulary.render(messages or [Message("user", ASK[0]["content"])])
    return b"".join(vocabulary.piece(token) for token in running.script.greedy(prompt, count))


async def test_the_answer_is_the_models_text_with_its_usage(running: Running, client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=20, temperature=0)
    assert answer.choices[0].message.content == greedy(running, 20).decode()
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage is not None
    prompt = len(running.script.vocabulary.render([Message("user", ASK[0]["content"])]))
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (prompt, 20)
    assert answer.usage.total_tokens == prompt + 20


async def test_a_stream_gives_the_same_text_as_a_whole_answer(running: Running, client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=20, temperature=0, stream=True)
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == greedy(running, 20).decode()
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


async def test_usage_comes_in_a_last_chunk_of_its_own_when_asked_for(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=7, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 7
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_a_stop_string_ends_the_answer_and_is_no_part_of_it(running: Running, client: openai.AsyncOpenAI) -> None:
    text = greedy(running, 60).decode()
    stop = text[17:21]  # begins and ends wherever in tokens
    assert text.index(stop) == 17, "the script repeats itself: choose another"
    whole = await client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, stop=[stop])
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (text[:17], "stop")
    stream = await client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, stop=stop, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == text[:17]


async def test_a_seed_repeats_the_answer_and_another_gives_another(client: openai.AsyncOpenAI) -> None:
    async def ask(seed: int | None) -> str | None:
        answer = await client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=30, seed=seed)
        return answer.choices[0].message.content

    assert await ask(5) == await ask(5)
    assert await ask(-5) == await ask(-5)
    assert len({await ask(5), await ask(-5), await ask(None), await ask(None)}) == 4


async def test_n_choices_differ_under_one_seed_and_repeat_with_it(client: openai.AsyncOpenAI) -> None:
    first = await client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=20, seed=1, n=3)
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    texts = [choice.message.content or "" for choice in first.choices]
    assert len(set(texts)) == 3
    assert first.usage is not None
    assert first.usage.completion_tokens == 60
    streamed = ["", "", ""]
    again = await client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=20, seed=1, n=3, stream=True)
    async for chunk in again:
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts


async def test_characters_are_never_split_between_chunks(client: openai.AsyncOpenAI) -> None:
    bias = {str(byte): 60 for byte in "☃".encode()}  # random runs of its three bytes: whole characters and broken ones
    whole = await client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=200, seed=3, logit_bias=bias)
    text = whole.choices[0].message.content or ""
    assert text.count("☃") > 2
    stream = await client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=200, seed=3, logit_bias=bias, stream=True
    )
    # A character that was cut in two would come as two or three replacement characters instead.
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == text


async def test_logprobs_name_each_token_and_its_rivals(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=5, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(entry.token for entry in logprobs.content) == answer.choices[0].message.content
    for entry in logprobs.content:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token  # greedy takes the likeliest


async def test_developer_messages_and_text_parts_are_taken(running: Running, client: openai.AsyncOpenAI) -> None:
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "it."}]},
    ]
    answer = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=9, temperature=0)
    expected = greedy(running, 9, [Message("system", "Be brief."), Message("user", "Say it.")])
    assert answer.choices[0].message.content == expected.decode()


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        ({"audio": {"voice": "x", "format": "wav"}}, "audio", "unsupported_parameter"),
        ({"store": True}, "store", "unsupported_parameter"),
        ({"response_format": {"type": "yaml"}}, "response_format", "invalid_value"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "blah"}}}},
            "response_format",
            "invalid_value",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "response_format.json_schema.name",
            "invalid_value",
        ),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
            "invalid_value",
        ),
        ({"tools": [TOOL, TOOL]}, "tools", "invalid_value"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
            "invalid_value",
        ),
        ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0]", "invalid_value"),
        ({"messages": [{"role": "user", "content": "x", "name": "Ann"}]}, "messages[0].name", "unsupported_parameter"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "invalid_value"),
        ({"min_tokens": 9, "max_tokens": 5}, "min_tokens", "invalid_value"),
        ({"frobnicate": 1}, "frobnicate", "unknown_parameter"),
        ({"temperature": 9}, "temperature", "invalid_value"),
        ({"repetition_penalty": 5e-324}, "repetition_penalty", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content",
            "unsupported_parameter",
        ),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "invalid_value"),
        ({"stop": ["x"] * 17}, "stop", "invalid_value"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, "messages", "context_length_exceeded"),
        ({"top_logprobs": 2}, None, "invalid_value"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(
    running: Running, change: dict[str, Any], param: str | None, code: str
) -> None:
    async with httpx2.AsyncClient(base_url=running.url, headers=running.headers) as http:
        answer = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": ASK} | change)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    assert error["message"]


async def test_errors_reach_openais_client_as_its_own_exceptions(running: Running, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.chat.completions.create(model="gpt-9", messages=ASK)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError) as wrong:
        await client.with_options(api_key="sk-pl-wrong").chat.completions.create(model=MODEL, messages=ASK)
    assert wrong.value.code == "invalid_api_key"


async def test_bodies_that_are_no_json_or_too_large(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, body_bytes=2000) as running,
        httpx2.AsyncClient(base_url=running.url, headers=running.headers) as http,
    ):
        for content in (b"{", b"[]", b'"x"', b"\xff\xfe", b""):
            answer = await http.post(
                "/v1/chat/completions", content=content, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == 400, content
            assert answer.json()["error"]["type"] == "invalid_request_error"
        large = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x" * 3000}]})
        answer = await http.post("/v1/chat/completions", content=large, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_aborts_its_generation_within_one_step(tmp_path: Path, stream: bool) -> None:
    steps = Steps()
    engine = scripted(step_s=1.0, sleep=steps.wait)
    async with serving(tmp_path, engine, steps=steps) as running:
        gateway = running.gateway
        body = {"model": MODEL, "messages": ASK, "stream": stream}
        async with httpx2.AsyncClient(base_url=running.url, headers=running.headers, timeout=10) as http:
            request = http.build_request("POST", "/v1/chat/completions", json=body)
            sending = None
            steps.allow(3)
            if stream:
                response = await http.send(request, stream=True)
                lines = response.aiter_lines()
                while "content" not in await anext(lines):
                    pass
            else:
                sending = asyncio.ensure_future(http.send(request))
            await until(lambda: any(len(g.ledger) >= 1 for g in gateway.answers))
            (generation,) = gateway.answers
            if sending is None:
                await response.aclose()
            else:
                sending.cancel()
        await until(lambda: not gateway.answers)
        before = len(generation.ledger)
        steps.allow(4)  # the three before may not all be used
        await until(lambda: engine.load().running == 0 and generation.finished is not None)
        assert generation.finished is not None
        assert generation.finished.reason == "cancelled"
        assert len(generation.ledger) <= before + 4


async def test_a_failing_engine_is_a_503_or_an_event_in_the_stream(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, scripted(fail_at=3)) as running,
        openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        with pytest.raises(openai.APIError, match="engine failed"):
            _ = [chunk async for chunk in stream]
        with pytest.raises(openai.InternalServerError) as failed:
            await client.chat.completions.create(model=MODEL, messages=ASK)
        assert failed.value.status_code == 503
        async with httpx2.AsyncClient(base_url=running.url) as http:
            assert (await http.get("/readyz")).status_code == 503
            assert (await http.get("/healthz")).status_code == 200


async def test_a_full_queue_is_a_429_that_says_when_to_come_back(tmp_path: Path) -> None:
    steps = Steps()
    engine = scripted(step_s=1.0, sleep=steps.wait, streams=1, queue=1)
    async with (
        serving(tmp_path, engine, steps=steps) as running,
        httpx2.AsyncClient(base_url=running.url, headers=running.headers, timeout=10) as http,
    ):
        body = {"model": MODEL, "messages": ASK, "stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body):
            steps.allow()
            await until(lambda: engine.load().running == 1 and engine.load().waiting == 0)
            async with http.stream("POST", "/v1/chat/completions", json=body):
                refused = await http.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
        assert int(refused.headers["Retry-After"]) >= 1


async def test_when_the_engine_dies_answers_end_with_its_error_and_the_gateway_is_unready(tmp_path: Path) -> None:
    body = {"model": MODEL, "messages": ASK, "stream": True}
    async with (
        serving(tmp_path, scripted(fail_at=5)) as running,
        httpx2.AsyncClient(base_url=running.url, headers=running.headers, timeout=5) as http,
    ):
        assert (await http.get("/readyz")).status_code == 200
        lines = [line for line in (await http.post("/v1/chat/completions", json=body)).text.splitlines() if line]
        assert any('"content"' in line for line in lines)
        error = json.loads(lines[-1].removeprefix("data: "))["error"]
        assert (error["type"], error["code"], error["param"]) == ("server_error", "engine_failed", None)
        refused = await http.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_failed")
        ready = await http.get("/readyz")
        assert (ready.status_code, list(ready.json()["problems"])) == (503, ["engine"])
        assert (await http.get("/healthz")).status_code == 200


async def test_stopping_the_gateway_ends_answers_in_progress_and_writes_their_usage(tmp_path: Path) -> None:
    async with serving(tmp_path, scripted(step_s=0.002)) as running:
        http = httpx2.AsyncClient(base_url=running.url, headers=running.headers, timeout=10)
        response = await http.send(
            http.build_request("POST", "/v1/chat/completions", json={"model": MODEL, "messages": ASK, "stream": True}),
            stream=True,
        )
        lines = response.aiter_lines()
        while "content" not in await anext(lines):
            pass
        await until(lambda: all(len(generation.ledger) for generation in running.gateway.answers))
        running.gateway.drain()
        rest = [line async for line in lines if line]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "shutting_down"
        await http.aclose()
    repository = Repository(open_database(IsolatedSettings(data_dir=tmp_path).database))
    (row,) = await repository.usage(tenant="default")
    assert row.counts.requests == 1
    assert row.counts.completion >= 1
    await repository.close()


CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Bonn"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": CITY, "strict": True}}
CITY_FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}


@pytest.mark.parametrize("stream", [True, False])
async def test_structured_output_matches_its_schema(client: openai.AsyncOpenAI, stream: bool) -> None:
    for seed in range(4):
        if stream:
            chunks = await client.chat.completions.create(
                model=MODEL, messages=ASK, seed=seed, response_format=CITY_FORMAT, stream=True
            )
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
        else:
            answer = await client.chat.completions.create(
                model=MODEL, messages=ASK, seed=seed, response_format=CITY_FORMAT
            )
            assert answer.choices[0].finish_reason == "stop"
            text = answer.choices[0].message.content or ""
        value = json.loads(text)
        assert set(value) == {"city", "days"}
        assert value["city"] in ("Ulm", "Bonn")
        assert 1 <= value["days"] <= 9


async def test_structured_output_ends_with_its_grammar_whatever_min_tokens_says(client: openai.AsyncOpenAI) -> None:
    """Found by schemathesis: the end was all that the grammar left, and `min_tokens` forbade it."""
    answer = await client.chat.completions.create(
        model=MODEL, messages=ASK, seed=1, response_format=CITY_FORMAT, extra_body={"min_tokens": 200}
    )
    assert answer.choices[0].finish_reason == "stop"
    assert set(json.loads(answer.choices[0].message.content or "")) == {"city", "days"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
async def test_a_forced_call_is_whole_and_its_stream_says_the_same(client: openai.AsyncOpenAI, choice: Any) -> None:
    async def ask(**fields: Any) -> Any:
        return await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False, seed=3, **fields
        )

    (whole,) = (await ask()).choices
    assert whole.finish_reason == "tool_calls"
    assert whole.message.content is None
    (call,) = whole.message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("Ulm", "Bonn")
    reasons, arguments = [], ""
    async for chunk in await ask(stream=True):
        reasons += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
        for delta in chunk.choices[0].delta.tool_calls or ():
            arguments += delta.function.arguments
    assert (reasons, arguments) == (["tool_calls"], call.function.arguments)


async def test_a_right_prediction_changes_nothing_but_the_number_of_steps(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, scripted(step_s=0.01)) as running,
        openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0) as client,
    ):
        text = greedy(running, 100).decode()
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=100, temperature=0, prediction={"type": "content", "content": text}
        )
    assert answer.choices[0].message.content == text
    assert answer.usage is not None
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens
    assert (
        details.accepted_prediction_tokens > 20
    )  # those that the model spells in the tokens that the text is cut into


async def test_completions_go_on_with_text_or_ids(running: Running, client: openai.AsyncOpenAI) -> None:
    vocabulary = running.script.vocabulary
    prompts = ["once", "twice"]
    expected = [
        b"".join(map(vocabulary.piece, running.script.greedy(vocabulary.encode(prompt), 16))).decode()
        for prompt in prompts
    ]
    answer = await client.completions.create(model=MODEL, prompt=prompts, temperature=0)
    assert [choice.text for choice in answer.choices] == expected
    ids = [vocabulary.encode(prompt) for prompt in prompts]
    stream = await client.completions.create(model=MODEL, prompt=ids, temperature=0, stream=True, echo=True)
    texts = ["", ""]
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [prompt + text for prompt, text in zip(prompts, expected, strict=True)]


async def test_another_method_is_told_which_one_the_address_takes(running: Running) -> None:
    async with httpx2.AsyncClient(base_url=running.url, headers=running.headers) as http:
        for method, address, allowed in (
            ("GET", "/v1/chat/completions", "POST"),
            ("DELETE", "/v1/responses", "POST"),
            ("POST", "/v1/models", "GET"),
        ):
            answer = await http.request(method, address)
            assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
            assert answer.json()["error"] == {
                "message": f"Only {allowed} requests are accepted here.",
                "type": "invalid_request_error",
                "param": None,
                "code": "method_not_supported",
            }
        assert (await http.get("/v1/chat/nothing")).json()["error"]["code"] == "not_found"
