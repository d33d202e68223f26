from __future__ import annotations

import json

from edge.openai import render
from edge.openai.schemas import ChatRequest
from edge.protocol.frames import Message, Sampling, TokenLogprob, Usage
from edge.script import ScriptVocabulary

VOCABULARY = ScriptVocabulary()


def chat(**fields: object) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]} | fields
    return ChatRequest.model_validate(body)


def test_defaults_are_openais() -> None:
    assert render.sampling(chat(), seed=7) == Sampling(temperature=1.0, seed=7)


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
    assert render.sampling(request, seed=7, choice=2) == Sampling(
        0.5, 40, 0.9, 0.1, 0.2, 0.3, 1.1, ((3, 2.5), (9, -1.0)), seed=11, choice=2
    )


def test_edges_of_ranges_become_what_the_rule_takes() -> None:
    sampling = render.sampling(chat(top_p=0, top_k=-1, seed=-1), seed=7)
    assert 0 < sampling.top_p < 1e-6
    assert sampling.top_k == 0
    assert sampling.seed == 2**63 - 1


def test_developer_is_system_and_parts_are_joined() -> None:
    request = chat(
        messages=[
            {"role": "developer", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
        ]
    )
    assert render.messages(request.messages) == (Message("system", "a"), Message("user", "bc"))


def test_text_comes_in_whole_characters_and_the_rest_in_the_end() -> None:
    text = render.ChoiceText(VOCABULARY)
    assert [text.push([byte]) for byte in "é☃".encode()] == ["", "é", "", "", "☃"]
    assert text.push([0xE2]) == ""
    assert text.finish(None) == "�"


def test_what_may_begin_a_stop_string_waits() -> None:
    text = render.ChoiceText(VOCABULARY, stop=("END",))
    assert [text.push([byte]) for byte in b"aENb"] == ["a", "", "", "ENb"]
    assert text.push(list(b"cEND")) == "c"
    assert text.finish(5) == ""


def test_before_min_tokens_a_stop_string_is_text() -> None:
    text = render.ChoiceText(VOCABULARY, stop=("b",), min_tokens=3)
    assert text.push(list(b"ab")) == "ab"
    assert text.push(list(b"cb")) == "c"


def test_logprobs_are_finite_json_and_give_the_bytes_of_partial_characters() -> None:
    text = render.ChoiceText(VOCABULARY, logprobs=True)
    rendered = text.logprobs([TokenLogprob(0xE2, float("-inf"), ((97, -0.5),))])
    assert rendered is not None
    (entry,) = rendered.content
    assert (entry.token, entry.logprob, entry.bytes) == ("�", -9999.0, [0xE2])
    assert (entry.top_logprobs[0].token, entry.top_logprobs[0].logprob) == ("a", -0.5)
    assert render.ChoiceText(VOCABULARY).logprobs([TokenLogprob(1, 0.0)]) is None


def test_chunks_are_events_of_one_line() -> None:
    renderer = render.StreamRenderer("id", 1, "m", include_usage=True)
    events = [
        renderer.begin(0),
        renderer.text(0, "a\nb\u2028\U0001f600"),
        renderer.finish(0, "stop"),
        renderer.usage([Usage(prompt=3, completion=4), Usage(prompt=3, completion=5)]),
    ]
    for event in events:
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        assert event.count(b"\n") == 2
    bodies = [json.loads(event[6:]) for event in events]
    assert bodies[1]["choices"][0]["delta"] == {"content": "a\nb\u2028\U0001f600"}
    assert bodies[2]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert bodies[3]["choices"] == []
    assert bodies[3]["usage"] == {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    assert [body["usage"] for body in bodies[:3]] == [None, None, None]
