from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from edge.openai.schemas import ChatRequest, Unsupported

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tools": None, "tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"modalities": ["text"]},
        {"store": False, "user": "u", "metadata": {"a": "b"}, "service_tier": "auto"},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"max_tokens": 5, "max_completion_tokens": 5},
        {"stop": None, "seed": None, "temperature": None, "n": None, "logit_bias": None},
    ],
)
def test_what_means_off_or_has_no_effect_is_taken(fields: dict[str, Any]) -> None:
    ChatRequest.model_validate(BODY | fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("functions", [{}]),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("reasoning_effort", "high"),
        ("web_search_options", {}),
        ("store", True),
    ],
)
def test_a_feature_that_is_not_done_is_refused_as_such(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        ChatRequest.model_validate(BODY | {field: value})
    (error,) = refused.value.errors()
    assert error["loc"] == (field,)
    assert isinstance(error["ctx"]["error"], Unsupported)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -0.1},
        {"temperature": 2.1},
        {"temperature": float("nan")},
        {"top_p": 1.1},
        {"n": 0},
        {"n": 17},
        {"stop": ""},
        {"stop": ["a" * 257]},
        {"seed": 2**63},
        {"seed": 1.5},
        {"logit_bias": {"-1": 1}},
        {"logit_bias": {"1": 101}},
        {"max_tokens": 5, "max_completion_tokens": 6},
        {"top_logprobs": 3},
        {"logprobs": True, "top_logprobs": 21},
        {"stream_options": {"include_usage": True}},
        {"stream_options": {"include_usage": True, "x": 1}, "stream": True},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user", "content": "x", "tool_call_id": "c"}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
        {"tools": [{"type": "function"}]},
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"prediction": {"type": "content"}},
        {"model": 5},
    ],
)
def test_what_is_out_of_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChatRequest.model_validate(BODY | fields)
