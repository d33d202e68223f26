"""What an OpenAI client can ask of vLLM, with drafts: its `prediction` is drafted from as a device's would be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio

from app.engine.vllm_engine import VllmEngine
from tests.app.serving import serving
from tests.vllm.borrowed import Borrowed

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]
ASK: list[Any] = [{"role": "user", "content": "Write a story about a dragon who lived by the sea."}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "tell_age", "parameters": SCHEMA}}


@pytest_asyncio.fixture(loop_scope="session")
async def chat(engine: VllmEngine, tmp_path: Path) -> AsyncIterator[Any]:
    """Asks for one answer of at most 40 tokens, at temperature 0."""
    borrowed: Any = Borrowed(engine)
    async with (
        serving(tmp_path, borrowed) as running,
        openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0) as client,
    ):

        async def ask(**fields: Any) -> Any:
            fields = {"max_tokens": 40, "temperature": 0, **fields}
            return await client.chat.completions.create(model="smollm2", messages=ASK, **fields)

        yield ask


def predicted(text: str) -> dict[str, str]:
    return {"type": "content", "content": text}


def accepted(answer: Any) -> int:
    return int(answer.usage.completion_tokens_details.accepted_prediction_tokens)


async def test_a_prediction_changes_nothing_and_is_accepted(chat: Any) -> None:
    plain = await chat()
    drafted = await chat(prediction=predicted(plain.choices[0].message.content))
    assert drafted.choices[0].message.content == plain.choices[0].message.content
    assert drafted.choices[0].finish_reason == "length"
    assert accepted(drafted) > 10


async def test_stop_strings_logprobs_and_penalties(chat: Any) -> None:
    text = (await chat()).choices[0].message.content
    stop = text.split()[5]
    plain = await chat(stop=[stop], logprobs=True, top_logprobs=2, frequency_penalty=0.1)
    drafted = await chat(stop=[stop], logprobs=True, top_logprobs=2, frequency_penalty=0.1, prediction=predicted(text))
    for answer in (plain, drafted):
        assert stop not in answer.choices[0].message.content
        assert answer.choices[0].finish_reason == "stop"
    assert drafted.choices[0].message.content == plain.choices[0].message.content
    tokens, others = ([entry.token for entry in answer.choices[0].logprobs.content] for answer in (drafted, plain))
    assert tokens == others
    assert all(len(entry.top_logprobs) == 2 for entry in drafted.choices[0].logprobs.content)


async def test_n_choices_are_streams_of_their_own(chat: Any) -> None:
    answer = await chat(n=3, temperature=1.0, seed=5)
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) == 3
    assert [choice.message.content for choice in (await chat(n=3, temperature=1.0, seed=5)).choices] == texts
    greedy = await chat(n=2, prediction=predicted((await chat()).choices[0].message.content))
    assert len({choice.message.content for choice in greedy.choices}) == 1
    assert accepted(greedy) > 20


async def test_structured_output_is_drafted_too(chat: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "dragon", "schema": SCHEMA, "strict": True}}
    plain = await chat(response_format=form, max_tokens=80)
    found = json.loads(plain.choices[0].message.content)
    assert set(found) == {"name", "age"}
    drafted = await chat(response_format=form, max_tokens=80, prediction=predicted(plain.choices[0].message.content))
    assert drafted.choices[0].message.content == plain.choices[0].message.content
    assert accepted(drafted) > 3


async def test_a_tool_that_must_be_called_is_called(chat: Any) -> None:
    fields = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "tell_age"}}, "max_tokens": 80}
    answer = await chat(**fields)
    [call] = answer.choices[0].message.tool_calls
    assert call.function.name == "tell_age"
    assert set(json.loads(call.function.arguments)) == {"name", "age"}
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(("field", "value"), [("logit_bias", {"5": 2.0}), ("min_p", 0.1)])
async def test_what_vllm_cannot_combine_is_a_400_that_names_it(chat: Any, field: str, value: Any) -> None:
    more = {"extra_body": {field: value}}
    with pytest.raises(openai.BadRequestError, match=field):
        await chat(temperature=0.8, **more)
