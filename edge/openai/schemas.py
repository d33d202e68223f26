"""What a client of the OpenAI API may send. The only Pydantic models besides the settings: they are the HTTP boundary.

A field is either honoured or refused by name, never ignored. Fields that can't change the output are taken as they are
(`user`, `metadata`); features that aren't done are taken at the value that means "off". Requests of /v1/responses are
in responses.py.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from edge.openai import document

MAX_CHOICES: Final = 16
MAX_PROMPTS: Final = 64
MAX_STOPS: Final = 16
MAX_STOP_CHARACTERS: Final = 256
MAX_TOOLS: Final = 128

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
JsonObject = dict[str, Any]
Bias = dict[Annotated[int, Field(ge=0, lt=2**31)], Annotated[float, Field(ge=-100, le=100)]]


class Unsupported(ValueError):
    """The field is known and isn't done."""


class Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _stops(stop: str | list[str] | None) -> str | list[str] | None:
    strings = [stop] if isinstance(stop, str) else stop or []
    if len(strings) > MAX_STOPS:
        raise ValueError(f"at most {MAX_STOPS} stop strings are taken")
    if any(not s or len(s) > MAX_STOP_CHARACTERS for s in strings):
        raise ValueError(f"a stop string has 1 to {MAX_STOP_CHARACTERS} characters")
    return stop


class Generating(Schema):
    """How to generate: what all endpoints take."""

    OFF: ClassVar[frozenset[str]] = frozenset()
    """Fields that are taken only at the value that means "off"."""

    model: str
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[str | list[str] | None, AfterValidator(_stops)] = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Annotated[Bias, Field(json_schema_extra=document.TOKEN_NAMES)] | None = None

    # Not OpenAI's; the names are those of vLLM and llama.cpp's server.
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, body: Any) -> Any:
        """JSON can escape half of a character (a lone surrogate), which no tokenizer takes and no UTF-8 can say."""
        try:
            msgspec.json.encode(body)
        except UnicodeEncodeError:
            raise ValueError("a string in it is not Unicode text (a lone surrogate)") from None
        return body

    min_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None

    # Without effect on the output.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "default"] | None = None

    @field_validator("*", mode="wrap")
    @classmethod
    def _off(cls, value: Any, parse: Any, info: Any) -> Any:
        if info.field_name not in cls.OFF:
            return parse(value)
        try:
            return parse(value)
        except ValueError:
            raise Unsupported("this gateway doesn't do that") from None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class StreamOptions(Schema):
    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class TextPart(Schema):
    type: Literal["text"]
    text: str


class CalledFunction(Schema):
    name: str
    arguments: str


class ToolCall(Schema):
    """A call that the assistant made earlier in the conversation."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Schema):
    """`refusal`, `audio`, `annotations` and `function_call` come empty when a client sends back an answer as it was."""

    model_config = ConfigDict(json_schema_extra=document.message)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOLS)] | None = None
    tool_call_id: str | None = None
    name: None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or ())

    @field_validator("content", mode="before")
    @classmethod
    def _only_text(cls, content: Any) -> Any:
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") in ("image_url", "input_audio", "file", "refusal"):
                raise Unsupported(f"this gateway takes text only, not {part['type']}")
        return content

    @field_validator("name", mode="before")
    @classmethod
    def _no_names(cls, name: Any) -> Any:
        if name is not None:
            raise Unsupported("chat templates have no place for a participant's name")
        return name

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError(f"a message of role {self.role} needs content")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls are the assistant's")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("tool_call_id belongs to messages of role tool, which need it")
        return self


class Function(Schema):
    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(Schema):
    type: Literal["function"]
    function: Function


class NamedFunction(Schema):
    name: str


class NamedTool(Schema):
    type: Literal["function"]
    function: NamedFunction


class TextFormat(Schema):
    type: Literal["text"]


class JsonFormat(Schema):
    type: Literal["json_object"]


class JsonSchema(Schema):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, protected_namespaces=())

    name: Name
    description: str | None = None
    schema_: Annotated[JsonObject, Field(alias="schema")] = {}
    strict: bool | None = None


class SchemaFormat(Schema):
    type: Literal["json_schema"]
    json_schema: JsonSchema


Format = Annotated[TextFormat | JsonFormat | SchemaFormat, Field(discriminator="type")]


class Prediction(Schema):
    """What much of the answer will be: drafts of it."""

    type: Literal["content"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(Generating):
    """POST /v1/chat/completions."""

    OFF = frozenset(
        (
            "modalities", "functions", "function_call", "audio", "reasoning_effort", "verbosity", "web_search_options",
            "store",
        )
    )  # fmt: skip

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: Format | None = None
    prediction: Prediction | None = None

    store: Literal[False] | None = None
    modalities: list[Literal["text"]] | None = None
    functions: Annotated[list[Any], Field(max_length=0)] | None = None
    function_call: Literal["none", "auto"] | None = None
    audio: None = None
    reasoning_effort: Literal["none"] | None = None
    verbosity: Literal["medium"] | None = None
    web_search_options: None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream to be true")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens differ")
        return self

    @property
    def limit(self) -> int | None:
        """Tokens of output at most; None: as many as the context holds."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]


class CompletionRequest(Generating):
    """POST /v1/completions: text goes on, without a chat template."""

    OFF = frozenset(("suffix",))

    prompt: Annotated[
        str | TokenIds | Annotated[list[str] | list[TokenIds], Field(min_length=1, max_length=MAX_PROMPTS)],
        Field(json_schema_extra=document.no_empty_text),
    ]
    max_tokens: Annotated[int, Field(ge=1)] | None = 16
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    stream_options: StreamOptions | None = None
    suffix: None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream to be true")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise ValueError("best_of is taken only when it equals n")
        if self.echo and self.logprobs is not None:
            raise ValueError("logprobs of the prompt aren't computed: leave out echo or logprobs")
        return self
