"""How a model is told of tools, how it calls them, and the grammar of such calls. Pure.

One syntax, that of Hermes and Qwen models: the tools stand in the system message, a call is written
`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, and a result comes back in `<tool_response>`. It needs nothing
of a chat template but roles and text, so it works with every model, and a grammar can force it. For models trained on
other markup add a `ToolSyntax` to SYNTAXES.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from edge.openai.schemas import ChatMessage, Function
from edge.openai.structured import SPACING
from edge.protocol.frames import Message

MAX_CALLS: Final = 16
"""Calls in one answer, when a grammar forces them: without an end a small model may call for ever."""


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """`begin`, `middle` and `end` enclose a call's name and its arguments: begin NAME middle ARGUMENTS end."""

    begin: str
    middle: str
    end: str
    marker: str
    """How a call's text begins, whatever spacing the model chooses."""
    closing: str
    """What follows a call's JSON."""
    result: tuple[str, str]
    """Before and behind a tool's result."""
    instructions: str
    """Of the system message; `{tools}` are the tools, one JSON object a line."""


HERMES: Final = ToolSyntax(
    begin='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    end="}\n</tool_call>",
    marker="<tool_call>",
    closing="</tool_call>",
    result=("<tool_response>\n", "\n</tool_response>"),
    instructions=(
        "# Tools\n\nThese functions can be called:\n<tools>\n{tools}\n</tools>\n\nTo call one, answer with its name "
        'and its arguments as JSON:\n<tool_call>\n{{"name": "…", "arguments": {{…}}}}\n</tool_call>'
    ),
)
SYNTAXES: Final = {"hermes": HERMES}


def messages(
    chat: Sequence[ChatMessage], tools: Sequence[Function], syntax: ToolSyntax = HERMES
) -> tuple[Message, ...]:
    """The conversation as a template takes it: roles system, user and assistant, and text.

    `developer` is OpenAI's new name of `system`. Results of tools that follow each other come in one turn of the user.
    """
    turns = [_message(message, syntax) for message in chat]
    turns = _merged(turns, [message.role == "tool" for message in chat])
    if not tools:
        return tuple(turns)
    listed = "\n".join(json.dumps(_described(tool), ensure_ascii=False) for tool in tools)
    instructions = syntax.instructions.format(tools=listed)
    if turns[0].role == "system":
        return (Message("system", f"{turns[0].content}\n\n{instructions}"), *turns[1:])
    return (Message("system", instructions), *turns)


def calls_grammar(tools: Sequence[Function], *, most: int, syntax: ToolSyntax = HERMES, instead: str = "") -> str:
    """Lark of one to `most` calls of these tools; `instead`, a JSON schema: or such an object."""
    names = [f"call_{i}" for i in range(len(tools))]
    more = "" if most == 1 else f' ("\\n" call){{0,{most - 1}}}'
    lines = [f"start: calls{' | instead' if instead else ''}", f"calls: call{more}", f"call: {' | '.join(names)}"]
    for name, tool in zip(names, tools, strict=True):
        schema = (tool.parameters or {"type": "object"}) | {"x-guidance": SPACING}
        begin, end = json.dumps(syntax.begin + tool.name + syntax.middle), json.dumps(syntax.end)
        lines.append(f"{name}: {begin} %json {json.dumps(schema)} {end}")
    if instead:
        lines.append(f"instead: %json {json.dumps(json.loads(instead) | {'x-guidance': SPACING})}")
    return "\n".join(lines) + "\n"


def _described(tool: Function) -> dict[str, Any]:
    function = tool.model_dump(exclude_none=True, exclude={"strict"})
    return {"type": "function", "function": function}


def _message(message: ChatMessage, syntax: ToolSyntax) -> Message:
    if message.role == "tool":
        return Message("user", syntax.result[0] + message.text + syntax.result[1])
    role = "system" if message.role == "developer" else message.role
    calls = [
        f"{syntax.begin}{call.function.name}{syntax.middle}{call.function.arguments or '{}'}{syntax.end}"
        for call in message.tool_calls or ()
    ]
    return Message(role, "\n".join([message.text, *calls] if message.text else calls) if calls else message.text)


def _merged(turns: Sequence[Message], results: Sequence[bool]) -> list[Message]:
    """Neighbouring results joined: most templates want the roles to alternate."""
    merged: list[Message] = []
    behind = False
    for turn, result in zip(turns, results, strict=True):
        if result and behind:
            merged[-1] = Message("user", f"{merged[-1].content}\n{turn.content}")
        else:
            merged.append(turn)
        behind = result
    return merged
