"""Tool calls, grammars and what a gateway answers over HTTP: any text is taken, or refused as what it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.cloud import Cloud, Done, Piece
from edge.errors import EdgeError
from edge.openai import structured
from edge.openai.tool_calls import ToolCallParser
from edge.openai.tools import HERMES
from edge.protocol.frames import Grammar, Message, Sampling
from edge.script import ScriptVocabulary

quick = settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

# Tool calls

MARKERS = (HERMES.marker, HERMES.closing, HERMES.marker[:5])
HEADS_OF_CALLS = ('{"name": "f", "arguments": ', '{"name":"g","parameters":', '"name"')
MARKUP = st.sampled_from((*MARKERS, *HEADS_OF_CALLS, *'{}"\\[]\n é\u2028', "x" * 300))
OUTPUTS = st.lists(MARKUP | st.text(max_size=5), max_size=30).map("".join)


@quick
@given(OUTPUTS, st.lists(st.integers(1, 7), min_size=1, max_size=9))
def test_any_output_is_text_and_calls_however_it_is_cut(output: str, sizes: list[int]) -> None:
    whole, cut = ToolCallParser({"f"}), ToolCallParser({"f"})
    expected = [whole.push(output), whole.finish()]
    found, at, turn = [], 0, 0
    while at < len(output):
        size = sizes[turn % len(sizes)]
        found.append(cut.push(output[at : at + size]))
        at, turn = at + size, turn + 1
    found.append(cut.finish())
    assert _sum(found) == _sum(expected)
    text, calls = _sum(found)
    assert len(text) + sum(len(arguments) for _, arguments in calls) <= len(output)
    assert all(name == "f" for name, _ in calls), "a tool that isn't offered is never called"


def _sum(parsed: list[Any]) -> tuple[str, list[tuple[str, str]]]:
    calls: dict[int, list[str]] = {}
    for part in parsed:
        for call in part.calls:
            name, arguments = calls.setdefault(call.index, [call.name or "", ""])
            calls[call.index] = [name, arguments + call.arguments]
    return "".join(part.text for part in parsed), [(name, arguments) for name, arguments in calls.values()]


# Grammars

NUMBERS = st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False)
SHORT = st.text(max_size=5)


def _typed(kind: str, **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=optional)


def _with(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists, properties = st.lists(inner, max_size=3), st.dictionaries(SHORT, inner, max_size=3)
    required = st.lists(SHORT, max_size=2)
    return st.one_of(
        *(st.fixed_dictionaries({word: lists}) for word in ("anyOf", "allOf", "oneOf")),
        st.fixed_dictionaries({"not": inner}),
        _typed("array", items=inner, minItems=NUMBERS, uniqueItems=st.booleans()),
        _typed("object", properties=properties, required=required, additionalProperties=inner),
        st.fixed_dictionaries({"definitions": st.fixed_dictionaries({"a": inner}), "$ref": st.just("#/definitions/a")}),
    )


SCHEMAS = st.recursive(
    st.one_of(
        st.sampled_from(({}, True, False, {"$ref": "#"}, {"$ref": "#/definitions/a"}, {"const": None}, {"type": 5})),
        st.sampled_from(("string", "integer", "number", "null", "x")).flatmap(_typed),
        _typed("string", pattern=SHORT, format=SHORT),
        _typed("string", minLength=NUMBERS, maxLength=NUMBERS),
        _typed("integer", minimum=NUMBERS, maximum=NUMBERS, multipleOf=NUMBERS),
        st.fixed_dictionaries({"enum": st.lists(st.none() | SHORT | NUMBERS, max_size=3)}),
    ),
    _with,
    max_leaves=6,
)
RULES = ('start: "a"', "start: x", "x: start", 'x: "b" x |', "start: /(a|b)*c/", "%ignore /./", "start[lazy]: /.*/")
LARK = st.lists(st.sampled_from(RULES) | st.text(max_size=12), max_size=5).map("\n".join)
VOCABULARY = ScriptVocabulary()


@quick
@given(SCHEMAS, st.integers(0, 2**32))
def test_any_schema_is_refused_or_followed_to_its_end(schema: Any, seed: int) -> None:
    _follow(Grammar("json_schema", json.dumps(schema)), seed)


@quick
@given(LARK, st.integers(0, 2**32))
def test_any_grammar_is_refused_or_followed_to_its_end(source: str, seed: int) -> None:
    _follow(Grammar("lark", source), seed)


def _follow(grammar: Grammar, seed: int) -> None:
    try:
        structured.check(grammar, VOCABULARY)
    except ValueError:
        return
    matcher, random = structured.Matcher(grammar, VOCABULARY), np.random.default_rng(seed)
    for _ in range(24):
        allowed = np.flatnonzero(matcher.allowed())
        if not len(allowed):
            assert matcher._matcher.is_error(), "only the library's own limits leave nothing to go on with"
            return
        token = int(random.choice(allowed))
        if token in VOCABULARY.ends:
            return
        matcher.push(token)
    matcher.push(int(random.integers(VOCABULARY.size)))  # a draft that may lead astray
    matcher.allowed()
    matcher.pop(2)
    assert matcher.allowed().any() or matcher._matcher.is_error()


# Answers of a gateway that is broken, or hostile

NAMES = st.sampled_from(("choices", "delta", "content", "usage", "error", "message", "x"))
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | SHORT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
LINES = st.one_of(
    st.text(max_size=20),
    ANY.map(lambda value: f"data: {json.dumps(value)}"),
    st.just('data: {"choices": [{"delta": {"content": "a"}}]}'),
    st.just("data: [DONE]"),
)
EVENTS = st.lists(LINES, max_size=8).map("\n\n".join)
HEADS = st.sampled_from(
    (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n",
        "HTTP/1.1 500 No\r\n",
        "HTTP/1.1 401 No\r\n",
        "HTTP/1.1 999 What\r\n",
        "",
        "\x00\xff",
    )
)


async def test_any_answer_at_all_is_an_answer_or_one_of_our_errors() -> None:
    reply = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop = asyncio.get_running_loop()

    async def ask() -> None:
        async with Cloud(url, "key", timeout_s=5) as cloud:
            with contextlib.suppress(EdgeError):
                async for part in cloud.answer([Message("user", "x")], "m", Sampling(), None):
                    assert isinstance(part, Piece | Done)
            with contextlib.suppress(EdgeError):
                assert all(isinstance(name, str) for name in await cloud.models())

    @settings(quick, max_examples=100)
    @given(HEADS, EVENTS)
    def examples(head: str, events: str) -> None:
        nonlocal reply
        reply = f"{head}Connection: close\r\n\r\n{events}\n\n".encode(errors="replace")
        asyncio.run_coroutine_threadsafe(ask(), loop).result(30)

    async with server:
        await asyncio.to_thread(examples)


def test_the_schemas_above_are_of_both_kinds() -> None:
    structured.check(Grammar("json_schema", '{"type": "string"}'), VOCABULARY)
    with pytest.raises(ValueError, match="no output"):
        structured.check(Grammar("json_schema", '{"$ref": "#"}'), VOCABULARY)
