from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from edge.openai.job import chat_jobs, completion_jobs
from edge.openai.render import Renderer, chat_renderer, named_logprobs
from edge.openai.render_completions import completion_renderer
from edge.openai.schemas import ChatRequest, CompletionRequest
from edge.protocol.frames import Reason, TokenLogprob, Usage
from edge.script import ScriptVocabulary

VOCABULARY = ScriptVocabulary()
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def chat(**fields: Any) -> Renderer:
    request = ChatRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}]} | fields)
    jobs = chat_jobs(request, VOCABULARY, context=2048, seed=1)
    return chat_renderer(request, jobs, VOCABULARY, id="chatcmpl-ab", created=1)


def completion(**fields: Any) -> Renderer:
    request = CompletionRequest.model_validate({"model": "m", "prompt": "hi"} | fields)
    jobs = completion_jobs(request, VOCABULARY, context=2048, seed=1)
    return completion_renderer(request, jobs, VOCABULARY, id="cmpl-ab", created=1)


def drive(renderer: Renderer, pieces: Sequence[bytes], reason: Reason = "stop", kept_bytes: int | None = None) -> bytes:
    """All that is sent of one choice whose tokens are bytes, with a logprob of −1 each."""
    sent = renderer.begin()
    for piece in pieces:
        sent += renderer.push(0, piece, [TokenLogprob(byte, -1.0, ((byte, -1.0),)) for byte in piece])
    return sent + renderer.finish(0, reason, kept_bytes) + renderer.end([Usage(prompt=3, completion=4)])


def events(data: bytes) -> list[Any]:
    lines = data.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    assert all(line.startswith("data: ") and "\n" not in line for line in lines[:-1])
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_logprobs_are_finite_json_and_give_the_bytes_of_partial_characters() -> None:
    (entry,) = named_logprobs([TokenLogprob(0xE2, float("-inf"), ((97, -0.5),))], VOCABULARY).content
    assert (entry.token, entry.logprob, entry.bytes) == ("�", -9999.0, [0xE2])
    assert (entry.top_logprobs[0].token, entry.top_logprobs[0].logprob) == ("a", -0.5)


def test_chunks_are_events_of_one_line_and_usage_has_one_of_its_own() -> None:
    text = "a\nb\u2028\U0001f600"
    sent = events(drive(chat(stream=True, stream_options={"include_usage": True}), [text.encode()]))
    assert [chunk["choices"][0]["delta"] for chunk in sent[:-1]] == [
        {"role": "assistant", "content": ""},
        {"content": text},
        {},
    ]
    assert [chunk["usage"] for chunk in sent[:-1]] == [None, None, None]
    assert sent[-1]["choices"] == []
    assert sent[-1]["usage"]["total_tokens"] == 7
    assert "usage" not in events(drive(chat(stream=True), [b"a"]))[-1]


def test_choices_of_one_prompt_share_it_in_the_usage_and_other_prompts_count() -> None:
    renderer = completion(prompt=["a", "b"], n=2)
    usages = [Usage(prompt=3, completion=1), Usage(prompt=3, completion=2), *[Usage(prompt=5, completion=1)] * 2]
    for index in range(4):
        renderer.finish(index, "stop", None)
    usage = json.loads(renderer.end(usages))["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (8, 5)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_deltas_of_a_tool_call_add_up_to_it_however_many_tokens_come_at_once(size: int) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    pieces = [CALL.encode()[i : i + size] for i in range(0, len(CALL), size)]
    sent = events(drive(chat(stream=True, tools=tools), pieces))
    deltas = [chunk["choices"][0]["delta"] for chunk in sent]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert calls[0]["function"]["name"] == "f"
    assert [call["id"] for call in calls if "id" in call] == ["call_ab000"]
    assert "".join(call["function"]["arguments"] for call in calls) == '{"a": 1}'
    assert "".join(delta.get("content") or "" for delta in deltas) == ""
    assert [chunk["choices"][0]["finish_reason"] for chunk in sent if chunk["choices"][0]["finish_reason"]] == [
        "tool_calls"
    ]
    (choice,) = json.loads(drive(chat(tools=tools), pieces))["choices"]
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {"id": "call_ab000", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    ]
    assert choice["finish_reason"] == "tool_calls"


def test_a_streamed_completion_says_the_same_as_a_whole_one() -> None:
    pieces = [b"a", "☃".encode()[:2], "☃".encode()[2:] + b"b", b"END"]
    (whole,) = json.loads(drive(completion(echo=True, stop="END"), pieces, kept_bytes=5))["choices"]
    sent = events(drive(completion(echo=True, stop="END", stream=True), pieces, kept_bytes=5))
    assert "".join(chunk["choices"][0]["text"] for chunk in sent) == whole["text"] == "hia☃b"
    assert sent[-1]["choices"][0]["finish_reason"] == whole["finish_reason"] == "stop"


def test_a_completions_logprobs_say_where_each_token_begins() -> None:
    pieces = ["é".encode(), b"ab"]
    (whole,) = json.loads(drive(completion(logprobs=1), pieces))["choices"]
    assert whole["logprobs"]["text_offset"] == [0, 0, 1, 2]
    assert whole["logprobs"]["tokens"][2:] == ["a", "b"]
    assert whole["logprobs"]["top_logprobs"][3] == {"b": -1.0}
    sent = events(drive(completion(logprobs=1, stream=True), pieces))
    offsets = [at for chunk in sent for at in (chunk["choices"][0]["logprobs"] or {}).get("text_offset", [])]
    assert offsets == [0, 0, 1, 2]
