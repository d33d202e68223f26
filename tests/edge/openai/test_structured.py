from __future__ import annotations

import json

import numpy as np
import pytest

from edge.openai.schemas import Function
from edge.openai.structured import Matcher, check
from edge.openai.tools import calls_grammar
from edge.protocol.frames import Grammar
from edge.script import ScriptVocabulary

VOCABULARY = ScriptVocabulary()
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "count": {"type": "integer", "minimum": 0}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
GRAMMAR = Grammar("json_schema", json.dumps(SCHEMA))


def allowed(matcher: Matcher) -> set[int]:
    return set(np.flatnonzero(matcher.allowed()).tolist())


@pytest.mark.parametrize("seed", range(5))
def test_any_walk_through_the_mask_is_an_object_of_the_schema(seed: int) -> None:
    matcher, choose, tokens = Matcher(GRAMMAR, VOCABULARY), np.random.default_rng(seed), list[int]()
    while VOCABULARY.end not in tokens:
        options = sorted(allowed(matcher))
        tokens.append(VOCABULARY.end if VOCABULARY.end in options else int(choose.choice(options)))
        matcher.push(tokens[-1])
    value = json.loads(b"".join(map(VOCABULARY.piece, tokens)))
    assert set(value) == {"name", "count"}
    assert isinstance(value["count"], int)


def test_going_back_any_number_of_tokens_gives_the_masks_that_were_there() -> None:
    text = b'{"name": "x", "count": 12}'
    matcher, masks = Matcher(GRAMMAR, VOCABULARY), list[set[int]]()
    for token in text:
        masks.append(allowed(matcher))
        matcher.push(token)
    for length in (20, 13, 1, 0):
        matcher.push(VOCABULARY.end)
        matcher.push(ord("!"))  # wrong drafts, behind the end even
        matcher.pop(len(text) + 2 - length)
        assert allowed(matcher) == masks[length]
        for token in text[length:]:
            matcher.push(token)
    assert allowed(matcher) == {VOCABULARY.end}


def test_an_output_that_left_the_grammar_has_nothing_to_go_on_with_until_it_is_taken_back() -> None:
    matcher = Matcher(GRAMMAR, VOCABULARY)
    before = allowed(matcher)
    matcher.push(ord("x"))
    matcher.push(ord("{"))
    assert allowed(matcher) == set()
    matcher.pop(2)
    assert allowed(matcher) == before


def test_forced_calls_parse_as_calls() -> None:
    tools = [Function(name="f", parameters={"type": "object", "properties": {}, "additionalProperties": False})]
    matcher = Matcher(Grammar("lark", calls_grammar(tools, most=1)), VOCABULARY)
    for token in VOCABULARY.encode('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'):
        assert token in allowed(matcher)
        matcher.push(token)
    assert allowed(matcher) == {VOCABULARY.end}


@pytest.mark.parametrize("source", ['{"type": "blah"}', "[]", '{"$ref": "#/nowhere"}', "{"])
def test_schemas_that_cannot_be_enforced_are_found_before_a_stream_begins(source: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check(Grammar("json_schema", source), VOCABULARY)
