"""What a client of the OpenAI API may send. The only Pydantic models besides the settings: they are the HTTP boundary.

A field is either honoured or refused by name, never ignored. Fields that can't change the output are taken as they are
(`user`, `metadata`); features that aren't done are taken at the value that means "off".
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

MAX_CHOICES: Final = 16
MAX_STOPS: Final = 16
MAX_STOP_CHARACTERS: Final = 256


class Unsupported(ValueError):
    """The field is known and isn't done."""


class _Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TextPart(_Schema):
    type: Literal["text"]
    text: str


class ChatMessage(_Schema):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)

    @field_validator("content", mode="before")
    @classmethod
    def _only_text(cls, content: Any) -> Any:
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") in ("image_url", "input_audio", "file"):
                raise Unsupported(f"this gateway takes text only, not {part['type']}")
        return content


class StreamOptions(_Schema):
    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class TextFormat(_Schema):
    type: Literal["text"] = "text"


def _stops(stop: str | list[str] | None) -> str | list[str] | None:
    strings = [stop] if isinstance(stop, str) else stop or []
    if len(strings) > MAX_STOPS:
        raise ValueError(f"at most {MAX_STOPS} stop strings are taken")
    if any(not s or len(s) > MAX_STOP_CHARACTERS for s in strings):
        raise ValueError(f"a stop string has 1 to {MAX_STOP_CHARACTERS} characters")
    return stop


class ChatRequest(_Schema):
    """POST /v1/chat/completions."""

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: Annotated[str | list[str] | None, AfterValidator(_stops)] = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[Annotated[int, Field(ge=0, lt=2**31)], Annotated[float, Field(ge=-100, le=100)]] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    # Not OpenAI's; the names are those of vLLM and llama.cpp's server.
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None

    # Without effect on the output.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: Literal[False] | None = None

    # Not done: only the value that means "off" is taken.
    response_format: TextFormat | None = None
    modalities: list[Literal["text"]] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    functions: Annotated[list[Any], Field(max_length=0)] | None = None
    function_call: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    audio: None = None
    prediction: None = None
    reasoning_effort: Literal["none"] | None = None
    verbosity: Literal["medium"] | None = None
    web_search_options: None = None

    @field_validator(
        "response_format", "modalities", "tools", "functions", "audio", "prediction", "reasoning_effort", "verbosity",
        "web_search_options", "store", mode="wrap",
    )  # fmt: skip
    @classmethod
    def _off(cls, value: Any, parse: Any) -> Any:
        try:
            return parse(value)
        except ValueError:
            raise Unsupported("this gateway doesn't do that yet") from None

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

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
