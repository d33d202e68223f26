from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from edge.openai.output import Call, Collected, Part
from edge.openai.tool_calls import ToolCallParser


def parse(text: str, sizes: list[int] | None = None) -> tuple[str, list[Call]]:
    """What comes of a text that arrives in pieces of these sizes, over and over; None: at once."""
    parser, found, at = ToolCallParser({"f", "g"}), Collected(), 0
    sizes = sizes or [max(1, len(text))]
    turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        parsed = parser.push(text[at : at + size])
        found.add(Part(parsed.text, parsed.calls))
        at, turn = at + size, turn + 1
    parsed = parser.finish()
    found.add(Part(parsed.text, parsed.calls))
    return found.text, found.calls


TEXTS = [
    ("no calls, 1 < 2 <tool", "no calls, 1 < 2 <tool", []),
    ('<tool_call>\n{"name": "f", "arguments": {"a": "}\\"{"}}\n</tool_call>', "", [Call("f", '{"a": "}\\"{"}')]),
    (
        'First.\n<tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>{"name":"g","arguments":{"b":[{}]}}'
        "</tool_call>\n",
        "First.\n",
        [Call("f", "{}"), Call("g", '{"b":[{}]}')],
    ),
    ("<tool_call>nonsense</tool_call> on", "<tool_call>nonsense</tool_call> on", []),
    (
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        [],
    ),
    ('<tool_call>{"name": "f", "argu', '<tool_call>{"name": "f", "argu', []),
    ('<tool_call>{"name": "f", "arguments": {"cut": ', "", [Call("f", '{"cut": ')]),
    ("é👍<tool_call>", "é👍<tool_call>", []),
]


@given(st.sampled_from(TEXTS), st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_calls_and_text_are_the_same_however_the_output_was_cut_into_pieces(
    case: tuple[str, str, list[Call]], sizes: list[int]
) -> None:
    text, shown, calls = case
    assert parse(text, sizes) == (shown, calls)
    assert parse(text) == (shown, calls)


@given(
    st.dictionaries(st.text(max_size=8), st.recursive(st.text() | st.integers() | st.none(), st.lists), max_size=4),
    st.integers(1, 9),
)
def test_any_arguments_arrive_as_they_were_written(arguments: dict[str, object], size: int) -> None:
    written = json.dumps(arguments, ensure_ascii=False)
    shown, calls = parse(f'<tool_call>\n{{"name": "f", "arguments": {written}}}\n</tool_call>', [size])
    assert (shown, calls) == ("", [Call("f", written)])
