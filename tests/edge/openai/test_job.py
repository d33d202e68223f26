from __future__ import annotations

import json
from typing import Any

import pytest

from edge.openai import tools
from edge.openai.errors import Rejected
from edge.openai.job import Job, chat_jobs, completion_jobs, sampling
from edge.openai.schemas import ChatRequest, CompletionRequest
from edge.protocol.frames import Grammar, Message, Sampling
from edge.script import ScriptVocabulary

VOCABULARY = ScriptVocabulary()
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells it.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}]} | fields)


def jobs(**fields: Any) -> list[Job]:
    return chat_jobs(chat(**fields), VOCABULARY, context=2048, seed=7)


def completions(**fields: Any) -> list[Job]:
    request = CompletionRequest.model_validate({"model": "m", "prompt": "x"} | fields)
    return completion_jobs(request, VOCABULARY, context=2048, seed=7)


def test_defaults_are_openais() -> None:
    assert sampling(chat(), seed=7) == Sampling(temperature=1.0, seed=7)


def test_every_sampling_field_gets_through() -> None:
    request = chat(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        repetition_penalty=1.1,
        logit_bias={"9": -1, "3": 2.5},
        seed=11,
    )
    assert sampling(request, seed=7, choice=2) == Sampling(
        0.5, 40, 0.9, 0.1, 0.2, 0.3, 1.1, ((3, 2.5), (9, -1.0)), seed=11, choice=2
    )


def test_edges_of_ranges_become_what_the_rule_takes() -> None:
    given = sampling(chat(top_p=0, top_k=-1, seed=-1), seed=7)
    assert 0 < given.top_p < 1e-6
    assert given.top_k == 0
    assert given.seed == 2**63 - 1


def test_developer_is_system_and_parts_are_joined() -> None:
    request = chat(
        messages=[
            {"role": "developer", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
        ]
    )
    assert tools.messages(request.messages, []) == (Message("system", "a"), Message("user", "bc"))


def test_choices_differ_in_nothing_but_their_number() -> None:
    first, second = jobs(n=2, seed=1)
    assert (first.sampling.choice, second.sampling.choice) == (0, 1)
    assert first.prompt == second.prompt


def test_a_conversation_with_tools_has_them_in_its_system_message_and_their_results_as_a_users() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
    request = chat(
        tools=[TOOL],
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            {"role": "tool", "tool_call_id": "c2", "content": "wind"},
        ],
    )
    system, user, assistant, result = tools.messages(request.messages, [tool.function for tool in request.tools or ()])
    assert system.content.startswith("Be brief.\n\n")
    assert json.dumps(TOOL) in system.content
    assert user == Message("user", "How is it?")
    assert assistant == Message(
        "assistant", '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'
    )
    assert result.role == "user"
    assert result.content.index("rain") < result.content.index("wind")


def test_without_tool_choice_the_model_is_free_and_with_none_it_is_told_of_no_tools() -> None:
    (auto,) = jobs(tools=[TOOL])
    assert auto.sampling.grammar is None
    assert auto.tools == {"weather"}
    assert jobs(tools=[TOOL], tool_choice="none") == jobs()


def test_a_call_can_be_forced_and_a_function_named() -> None:
    other = {"type": "function", "function": {"name": "time"}}
    (required,) = jobs(tools=[TOOL, other], tool_choice="required")
    choice = {"type": "function", "function": {"name": "time"}}
    (named,) = jobs(tools=[TOOL, other], tool_choice=choice)
    assert required.sampling.grammar is not None
    assert named.sampling.grammar is not None
    assert "weather" in required.sampling.grammar.source
    assert "weather" not in named.sampling.grammar.source


def test_one_call_at_most_when_calls_may_not_be_parallel() -> None:
    (free,) = jobs(tools=[TOOL], parallel_tool_calls=False)
    assert free.stop == ("</tool_call>",)
    (forced,) = jobs(tools=[TOOL], parallel_tool_calls=False, tool_choice="required")
    assert forced.sampling.grammar is not None
    assert "{0," not in forced.sampling.grammar.source


def test_formats_become_grammars() -> None:
    (anything,) = jobs(response_format={"type": "json_object"})
    assert anything.sampling.grammar == Grammar("json_schema", '{"type": "object"}')
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    (strict,) = jobs(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    assert strict.sampling.grammar == Grammar("json_schema", json.dumps(schema))
    assert jobs(response_format={"type": "text"}) == jobs()


def test_a_prediction_is_tokenised() -> None:
    (job,) = jobs(prediction={"type": "content", "content": [{"type": "text", "text": "ab"}]})
    assert job.prediction == tuple(VOCABULARY.encode("ab"))


def test_prompts_come_as_text_or_ids_one_or_several() -> None:
    assert [job.prompt for job in completions(prompt="hi")] == [tuple(VOCABULARY.encode("hi"))]
    assert [job.prompt for job in completions(prompt=[5, 6])] == [(5, 6)]
    assert [job.prompt for job in completions(prompt=[[5], [6, 7]])] == [(5,), (6, 7)]
    many = completions(prompt=["a", "b"], n=2, seed=1)
    assert [job.prompt for job in many] == [(97,), (97,), (98,), (98,)]
    assert [job.sampling.choice for job in many] == [0, 1, 0, 1]
    assert many[0].max_tokens == 16


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": ""}, "prompt", "invalid_value"),
        ({"prompt": [512]}, "prompt", "invalid_value"),
        ({"prompt": "x" * 3000}, "prompt", "context_length_exceeded"),
        ({"logit_bias": {"512": 1}}, "logit_bias", "invalid_value"),
    ],
)
def test_prompts_that_cannot_be_completed_are_refused(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(Rejected) as refused:
        completions(**fields)
    assert (refused.value.param, refused.value.code) == (param, code)
