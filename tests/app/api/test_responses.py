"""/v1/responses, asked by OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from tests.app.serving import MODEL, Running

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Bonn"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "name": "weather", "parameters": CITY, "strict": True}


@pytest.fixture
async def client(running: Running) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0) as made:
        yield made


async def test_a_response_says_what_a_chat_completion_says(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(
        model=MODEL, instructions="Be brief.", input="Hi", temperature=0, max_output_tokens=20
    )
    messages: Any = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    chat = await client.chat.completions.create(model=MODEL, messages=messages, temperature=0, max_tokens=20)
    assert response.output_text == chat.choices[0].message.content
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert chat.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (chat.usage.prompt_tokens, 20)


async def test_a_streams_events_are_numbered_and_its_last_holds_the_whole_response(client: openai.AsyncOpenAI) -> None:
    fields: Any = {"model": MODEL, "input": "Hi", "temperature": 0, "max_output_tokens": 20}
    whole = await client.responses.create(**fields)
    events = [event async for event in await client.responses.create(stream=True, **fields)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.output_text == whole.output_text


@pytest.mark.parametrize("stream", [True, False])
async def test_a_tool_loop_goes_round(client: openai.AsyncOpenAI, stream: bool) -> None:
    ask: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    forced: Any = {
        "model": MODEL,
        "input": ask,
        "tools": [WEATHER],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "extra_body": {"seed": 3},
    }
    if stream:
        events = [event async for event in await client.responses.create(stream=True, **forced)]
        assert events[-1].type == "response.completed"
        response = events[-1].response
        arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    else:
        response = await client.responses.create(**forced)
        assert response.output[0].type == "function_call"
        arguments = response.output[0].arguments
    (call,) = response.output
    assert call.type == "function_call"
    assert call.arguments == arguments
    assert json.loads(arguments)["city"] in ("Ulm", "Bonn")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    history: Any = [*ask, call.model_dump(exclude_none=True), result]
    after = await client.responses.create(model=MODEL, tools=[WEATHER], input=history, max_output_tokens=8)
    assert after.output_text


async def test_a_format_is_kept(client: openai.AsyncOpenAI) -> None:
    text: Any = {"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}}
    response = await client.responses.create(model=MODEL, input="Where?", text=text)
    assert json.loads(response.output_text)["city"] in ("Ulm", "Bonn")
    assert response.status == "completed"


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"store": True}, "store", "unsupported_parameter"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_parameter"),
        ({"background": True}, "background", "unsupported_parameter"),
        ({"input": []}, "input", "invalid_value"),
        ({"input": "x" * 5000}, "input", "context_length_exceeded"),
        ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"frobnicate": 1}, "frobnicate", "unknown_parameter"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(
    running: Running, change: dict[str, Any], param: str, code: str
) -> None:
    async with httpx2.AsyncClient(base_url=running.url, headers=running.headers) as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "Hi"} | change)
    assert answer.status_code == 400
    assert (answer.json()["error"]["param"], answer.json()["error"]["code"]) == (param, code)
