"""Faults that servers of this kind keep being reported for: each a function that asks one endpoint and checks what it
tells. test_faults.py asks each of them cloud-only and hybrid, whole and streamed.
"""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import numpy as np

from edge.openai.tools import HERMES
from edge.protocol.frames import Message
from tests.e2e.told import CHAT, SAY, Fields, There, Told

Fault = Callable[[There], Awaitable[None]]
FAULTS: list[Fault] = []


def fault(check: Fault) -> Fault:
    FAULTS.append(check)
    return check


CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Köln", "東京"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY, "strict": True}}
CITY_FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
FORCED: Fields = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}


def script_text(there: There, tokens: int) -> str:
    """What the model says at temperature 0, by the script alone."""
    script = there.script
    prompt = script.vocabulary.render([Message("user", SAY[0]["content"])])
    return b"".join(map(script.vocabulary.piece, script.greedy(prompt, tokens))).decode()


def is_refused(told: Told, param: str | None, code: str = "invalid_value", status: int = 400) -> None:
    assert told.status == status, told
    assert told.error is not None
    assert set(told.error) == {"message", "type", "param", "code"}
    assert (told.error["type"], told.error["param"], told.error["code"]) == ("invalid_request_error", param, code)
    assert told.error["message"]


@fault
async def usage_comes_in_a_chunk_without_choices_and_only_when_asked_for(there: There) -> None:
    if not there.stream:
        assert (await there.ask()).tokens == 24
        return
    asked = await there.ask()
    assert [chunk["choices"] for chunk in asked.chunks if chunk["usage"] is not None] == [[]]
    assert asked.chunks[-1]["usage"]["completion_tokens"] == 24
    plain = await there.ask(stream_options=None)
    assert all(chunk["choices"] and "usage" not in chunk for chunk in plain.chunks)


@fault
async def max_completion_tokens_is_honoured(there: There) -> None:
    told = await there.ask(max_tokens=None, max_completion_tokens=7)
    assert (told.tokens, told.choice.reason) == (7, "length")
    same = await there.ask(max_tokens=7)
    assert same.choice.text == told.choice.text


@fault
async def the_developer_role_is_the_system_role(there: There) -> None:
    answers = [
        (await there.ask(messages=[{"role": role, "content": "Be brief."}, *SAY])).choice.text
        for role in ("developer", "system", "user")
    ]
    assert answers[0] == answers[1] != answers[2]


@fault
async def content_parts_are_the_text_that_they_add_up_to(there: There) -> None:
    text = SAY[0]["content"]
    parts = [{"type": "text", "text": text[:5]}, {"type": "text", "text": text[5:]}]
    told = await there.ask(messages=[{"role": "user", "content": parts}])
    assert told.choice.text == (await there.ask()).choice.text


@fault
async def bad_content_parts_are_a_400(there: There) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
    bad: list[tuple[Any, str, str]] = [
        ([image], "messages[0].content", "unsupported_parameter"),
        ([{"type": "input_audio", "input_audio": {}}], "messages[0].content", "unsupported_parameter"),
        ([{"type": "text"}], "messages[0].content[0].text", "invalid_value"),
        ([{"type": "text", "text": None}], "messages[0].content[0].text", "invalid_value"),
        ([{"text": "x"}], "messages[0].content[0].type", "invalid_value"),
        ([7], "messages[0].content[0]", "invalid_value"),
        (7, "messages[0].content", "invalid_value"),
        (None, "messages[0]", "invalid_value"),
    ]
    for content, param, code in bad:
        is_refused(await there.ask(messages=[{"role": "user", "content": content}]), param, code)


@fault
async def a_call_finishes_with_tool_calls_at_its_end_and_never_before(there: There) -> None:
    told = await there.ask(**FORCED, max_tokens=None)
    assert told.choice.reason == "tool_calls"
    assert not told.choice.text
    ((name, arguments),) = told.choice.calls
    assert name == "weather"
    assert json.loads(arguments)["city"] in CITY["properties"]["city"]["enum"]  # type: ignore[index]
    cut = await there.ask(**FORCED, max_tokens=3)
    assert cut.choice.reason == "length", "a call that isn't whole is none"


@fault
async def several_tokens_in_a_step_give_the_call_that_single_ones_give(there: There) -> None:
    fields: Fields = {**FORCED, "max_tokens": None}
    plain = await there.plain(**fields)
    ((name, arguments),) = plain.choice.calls
    written = HERMES.begin + name + HERMES.middle + arguments + HERMES.end
    told = await there.speculated(written, **fields)
    assert told.choice.calls == plain.choice.calls
    assert told.choice.reason == "tool_calls"


@fault
async def several_tokens_in_a_step_leak_nothing_of_a_stop_string(there: There) -> None:
    text = script_text(there, 60)
    for at in (11, 17, 24):
        stop = text[at : at + 4]
        assert text.index(stop) == at, "the script repeats itself: choose another place"
        told = await there.speculated(text, temperature=0, max_tokens=60, stop=["~~", stop], logprobs=True)
        assert (told.choice.text, told.choice.reason) == (text[:at], "stop")
        shown = "".join(entry["token"] for entry in told.choice.logprobs)
        assert text[:at].startswith(shown), "nor of the logprobs of its tokens"
        assert len(shown) >= at - 1


@fault
async def a_stop_inside_an_accepted_run_ends_there_with_stop_and_not_length(there: There) -> None:
    text = script_text(there, 24)
    stop = text[30:33]
    at = text.index(stop)
    told = await there.speculated(text, temperature=0, max_tokens=24, stop=stop)
    assert (told.choice.text, told.choice.reason) == (text[:at], "stop")
    assert told.tokens is not None
    assert told.tokens < 24
    one = await there.speculated(text, temperature=0, max_tokens=24)
    assert (one.choice.text, one.choice.reason) == (text, "length")


@fault
async def min_tokens_holds_back_stop_strings_and_the_end(there: There) -> None:
    text = script_text(there, 60)
    stop = text[2]
    early = await there.ask(temperature=0, max_tokens=60, stop=stop)
    assert early.choice.text == text[: text.index(stop)]
    late = await there.ask(temperature=0, max_tokens=60, stop=stop, min_tokens=20)
    assert len(late.choice.text) > 20
    assert late.choice.reason == "stop"
    end = there.script.vocabulary.end
    ending: Fields = {"logit_bias": {str(end): 100}, "max_tokens": 30}
    assert (await there.ask(**ending)).choice.text == ""
    kept = await there.ask(**ending, min_tokens=9)
    assert kept.choice.reason == "stop"
    assert len(kept.choice.text) >= 8


@fault
async def a_character_in_several_tokens_arrives_whole(there: There) -> None:
    """Emoji with joiners, CJK, combining marks: the model spells them byte by byte."""
    said = "a👩‍👩‍👧e\u0301東京🇩🇪n\u0303ः"
    schema = {"type": "object", "properties": {"s": {"const": said}}, "required": ["s"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}
    written = json.dumps({"s": said}, ensure_ascii=False)
    for told in (
        await there.ask(response_format=form, max_tokens=None),
        await there.speculated(written, response_format=form, max_tokens=None),
    ):
        assert json.loads(told.choice.text) == {"s": said}
        assert unicodedata.normalize("NFC", told.choice.text) != told.choice.text, "nobody composes the marks"
        for chunk in told.chunks:
            for choice in chunk["choices"]:
                assert "\ufffd" not in (choice["delta"].get("content") or "")


@fault
async def logprobs_have_their_shape_and_their_values_hold_under_speculation(there: There) -> None:
    text = script_text(there, 24)
    told = await there.speculated(text, temperature=0, logprobs=True, top_logprobs=3)
    entries, script = told.choice.logprobs, there.script
    assert "".join(entry["token"] for entry in entries) == told.choice.text
    prompt = script.vocabulary.render([Message("user", SAY[0]["content"])])
    previous, key = prompt[-1], script.key(prompt)
    for position, entry in enumerate(entries):
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert bytes(entry["bytes"]).decode() == entry["token"]
        logits = script.logits(key, position, previous).astype(np.float64)
        expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        token = script.vocabulary.pieces.index(bytes(entry["bytes"]))
        assert abs(entry["logprob"] - expected[token]) < 1e-4
        likeliest = sorted(expected)[:-4:-1]
        assert np.allclose([top["logprob"] for top in entry["top_logprobs"]], likeliest, atol=1e-4)
        previous = token


@fault
async def a_wrong_key_is_told_in_openais_words(there: There) -> None:
    async with there.with_key("sk-pl-wrong") as other:
        told = await other.ask()
        assert told.status == 401
        assert told.error is not None
        assert isinstance(told.error.pop("message"), str)
        assert told.error == {"type": "invalid_request_error", "param": None, "code": "invalid_api_key"}


@fault
async def over_a_limit_retry_after_says_when_to_come_back(there: There) -> None:
    key = await there.tenant(requests_per_minute=1)
    async with there.with_key(key) as other:
        assert (await other.ask()).status == 200
        told = await other.ask()
        assert told.status == 429
        assert told.error is not None
        assert (told.error["type"], told.error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert 1 <= int(told.headers["retry-after"]) <= 60


@fault
async def an_errors_type_is_never_the_string_none(there: There) -> None:
    for fields in ({"model": "gpt-9"}, {"temperature": 9}, {"nonsense": 1}, {"store": True}):
        told = await there.ask(**fields)
        assert told.status in (400, 404)
        assert told.error is not None
        assert told.error["type"] == "invalid_request_error"
        assert told.error["code"] not in (None, "None")
        assert told.error["param"] == next(iter(fields))


@fault
async def structured_output_survives_rejected_drafts(there: There) -> None:
    for seed in range(4):
        fields: Fields = {"response_format": CITY_FORMAT, "max_tokens": None, "seed": seed}
        told = await there.speculated('{"city": "Köln", "weeks": "none"}', certain=False, **fields)
        value = json.loads(told.choice.text)
        assert set(value) == {"city", "days"}
        assert told.choice.reason == "stop"
        assert told.choice.text == (await there.plain(**fields)).choice.text
    assert there.gateway.engine.failure() is None


@fault
async def choices_of_one_seed_are_independent_and_repeat(there: There) -> None:
    first, again = await there.ask(n=3), await there.ask(n=3)
    texts = [choice.text for choice in first.choices]
    assert len(set(texts)) == 3
    assert [choice.text for choice in again.choices] == texts
    alone = await there.ask(n=1)
    assert alone.choice.text == texts[0], "the first of three is the one of one"
    assert [choice.text for choice in (await there.ask(n=3, seed=6)).choices] != texts


@fault
async def every_sampling_parameter_counts_where_drafts_are_verified(there: There) -> None:
    long = {"max_tokens": 40}
    base = (await there.plain(**long)).choice.text
    letters = {str(ord(letter)): -100 for letter in "etaoin"}
    for fields in (
        {"temperature": 0},
        {"temperature": 1.9},
        {"top_p": 0.05},
        {"top_k": 2},
        {"min_p": 0.5},
        {"presence_penalty": 2},
        {"frequency_penalty": 2},
        {"repetition_penalty": 3},
        {"logit_bias": letters},
        {"seed": 6},
    ):
        plain = (await there.plain(**long | fields)).choice.text
        assert plain != base, f"{fields} changes something"
        assert (await there.speculated(plain, **long | fields)).choice.text == plain, fields


@fault
async def what_cannot_be_answered_is_a_400_that_names_the_field(there: There) -> None:
    is_refused(await there.ask(messages=[]), "messages")
    for limit in ("max_tokens", "max_completion_tokens"):
        for value in (0, -1):
            fields: Fields = {"max_tokens": None, limit: value}
            is_refused(await there.ask(**fields), limit)
    long = [{"role": "user", "content": "x" * 5000}]
    is_refused(await there.ask(messages=long), "messages", "context_length_exceeded")
    empty: list[tuple[Any, str]] = [("", "prompt"), ([], "prompt"), ([""], "prompt"), ([[]], "prompt[0]")]
    for prompt, param in empty:
        is_refused(await there.ask("completions", {"model": CHAT["model"], "prompt": prompt}), param)
    long_prompt = {"model": CHAT["model"], "prompt": "x" * 5000}
    is_refused(await there.ask("completions", long_prompt), "prompt", "context_length_exceeded")
    for value in (0, -1):
        body = {"model": CHAT["model"], "prompt": "once", "max_tokens": value}
        is_refused(await there.ask("completions", body), "max_tokens")


@fault
async def a_client_that_leaves_ends_its_generation(there: There) -> None:
    engine = there.gateway.engine
    body = CHAT | {"max_tokens": 1900, "stream": there.stream}

    async def read() -> None:
        async with (
            httpx2.AsyncClient(headers=there.headers, timeout=30) as client,
            client.stream("POST", f"{there.url}/v1/chat/completions", json=body) as response,
        ):
            async for _ in response.aiter_bytes():
                pass

    reading = asyncio.create_task(read())
    async with asyncio.timeout(10):
        while engine.load().running != 1:  # noqa: ASYNC110 (the engine tells nobody)
            await asyncio.sleep(0.002)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        while engine.load().running:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
