"""Requests of /v1/responses, and the chat requests that they come to. Pure.

Nothing is stored: what OpenAI keeps on its servers (`store`, `previous_response_id`, `conversation`) is refused, and a
client sends the whole conversation as `input`, which its helpers do when told not to store.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from edge.openai.errors import Rejected, rejected
from edge.openai.job import Job, chat_jobs
from edge.openai.schemas import (
    MAX_TOOLS,
    ChatRequest,
    Generating,
    JsonFormat,
    JsonObject,
    JsonSchema,
    Name,
    Schema,
    TextFormat,
)
from edge.openai.vocabulary import Vocabulary


class InputText(Schema):
    type: Literal["input_text", "output_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class InputMessage(Schema):
    """A turn; `id` and `status` come with an answer that is sent back as it was."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[InputText]
    id: str | None = None
    status: str | None = None


class InputCall(Schema):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None


class InputResult(Schema):
    type: Literal["function_call_output"]
    call_id: str
    output: str
    id: str | None = None
    status: str | None = None


class ResponseTool(Schema):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class ResponseToolChoice(Schema):
    type: Literal["function"]
    name: str


class ResponseSchema(JsonSchema):
    type: Literal["json_schema"]


class TextSettings(Schema):
    format: Annotated[TextFormat | JsonFormat | ResponseSchema, Field(discriminator="type")] | None = None
    verbosity: Literal["medium"] | None = None


class ResponsesRequest(Generating):
    """POST /v1/responses."""

    OFF = frozenset(
        ("store", "previous_response_id", "conversation", "background", "reasoning", "include", "prompt", "truncation")
    )

    input: str | Annotated[list[InputMessage | InputCall | InputResult], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: Annotated[list[ResponseTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextSettings | None = None

    store: Literal[False] | None = None
    previous_response_id: None = None
    conversation: None = None
    background: Literal[False] | None = None
    reasoning: None = None
    include: Annotated[list[str], Field(max_length=0)] | None = None
    prompt: None = None
    truncation: Literal["disabled"] | None = None


_SAME: Final = frozenset(Generating.model_fields) | {"parallel_tool_calls"}
_NAMES: Final = {
    "messages": "input",
    "response_format": "text.format",
    "max_completion_tokens": "max_output_tokens",
}
"""Fields of a chat request by what they are called here."""


def to_chat(request: ResponsesRequest) -> ChatRequest:
    """The same as a chat request. Raises pydantic's ValidationError if there is none."""
    body: dict[str, Any] = {name: getattr(request, name) for name in _SAME}
    body |= {"messages": _messages(request), "max_completion_tokens": request.max_output_tokens}
    if request.tools:
        body["tools"] = [
            {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}
            for tool in request.tools
        ]
    choice = request.tool_choice
    body["tool_choice"] = (
        {"type": "function", "function": {"name": choice.name}} if isinstance(choice, ResponseToolChoice) else choice
    )
    if request.text is not None and request.text.format is not None:
        body["response_format"] = _format(request.text.format)
    return ChatRequest.model_validate(body)


def response_jobs(request: ResponsesRequest, vocabulary: Vocabulary, *, context: int, seed: int) -> list[Job]:
    """The one job of a request, as of the chat request that it comes to. Raises Rejected, in this endpoint's names."""
    try:
        chat = to_chat(request)
    except ValidationError as error:  # messages that can't follow each other
        raise Rejected(f"Invalid 'input': {rejected(error.errors()).message}", "input") from error
    try:
        return chat_jobs(chat, vocabulary, context=context, seed=seed)
    except Rejected as error:
        raise Rejected(error.message, _NAMES.get(error.param or "", error.param), error.code) from error


def _format(given: TextFormat | JsonFormat | ResponseSchema) -> dict[str, Any]:
    dumped = given.model_dump(by_alias=True, exclude_none=True)
    if not isinstance(given, ResponseSchema):
        return dumped
    return {"type": "json_schema", "json_schema": {name: value for name, value in dumped.items() if name != "type"}}


def _messages(request: ResponsesRequest) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    if request.instructions is not None:
        turns.append({"role": "developer", "content": request.instructions})
    if isinstance(request.input, str):
        return [*turns, {"role": "user", "content": request.input}]
    for item in request.input:
        match item:
            case InputMessage():
                text = item.content if isinstance(item.content, str) else "".join(part.text for part in item.content)
                turns.append({"role": item.role, "content": text})
            case InputCall():
                function = {"name": item.name, "arguments": item.arguments}
                call = {"id": item.call_id, "type": "function", "function": function}
                if turns and turns[-1]["role"] == "assistant":
                    turns[-1].setdefault("tool_calls", []).append(call)
                else:
                    turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
            case InputResult():
                turns.append({"role": "tool", "tool_call_id": item.call_id, "content": item.output})
    return turns
