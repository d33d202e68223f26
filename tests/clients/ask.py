"""OpenAI's Python client against any endpoint; what it was told, in the form that ask.mjs prints.

python -m tests.clients.ask BASE_URL KEY MODEL [TOKENS [TEMPERATURE]]
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Literal

import openai
from pydantic import BaseModel, ConfigDict

MESSAGES: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Bonn"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]


class City(BaseModel):
    model_config = ConfigDict(extra="forbid")

    city: Literal["Ulm", "Bonn"]


def ask(url: str, key: str, model: str, tokens: int = 400, temperature: float = 0.7) -> dict[str, Any]:
    """Everything but streaming helpers by the synchronous client."""
    paths: set[str] = set()

    def note(response: Any) -> None:
        paths.add(response.headers.get("x-paceline-path", "gateway"))

    noting = openai.DefaultHttpxClient(event_hooks={"response": [note]})
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0, http_client=noting) as client:
        chat = client.chat.completions
        sampled: Any = {
            "model": model,
            "messages": MESSAGES,
            "seed": 5,
            "temperature": temperature,
            "max_tokens": tokens,
        }
        forced: Any = {"model": model, "messages": MESSAGES, "seed": 3, "temperature": temperature}
        whole = chat.create(**sampled)
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chat.create(**sampled, stream=True))
        parsed = chat.parse(**forced, response_format=City).choices[0].message.parsed
        assert parsed is not None
        asked = chat.create(**forced, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
        (call,) = asked.choices[0].message.tool_calls or []
        assert call.type == "function"
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        answered = [*MESSAGES, asked.choices[0].message.model_dump(), result]
        loop = chat.create(**sampled | {"messages": answered}, tools=TOOLS)
        completion = client.completions.create(
            model=model, prompt="once", seed=5, temperature=temperature, max_tokens=8
        )
    return {
        "whole": whole.choices[0].message.content,
        "streamed": streamed,
        "helped": asyncio.run(_helped(url, key, sampled)),
        "parsed": parsed.model_dump(),
        "call": {"name": call.function.name, "arguments": json.loads(call.function.arguments)},
        "loop": loop.choices[0].message.content,
        "completion": completion.choices[0].text,
        "paths": sorted(paths),
    }


async def _helped(url: str, key: str, sampled: dict[str, Any]) -> str | None:
    """By the asynchronous client's streaming helper."""
    async with (
        openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client,
        client.chat.completions.stream(**sampled) as stream,
    ):
        return (await stream.get_final_completion()).choices[0].message.content


if __name__ == "__main__":
    url, key, model, tokens, temperature = [*sys.argv[1:], "400", "0.7"][:5]
    sys.stdout.write(json.dumps(ask(url, key, model, int(tokens), float(temperature))) + "\n")
