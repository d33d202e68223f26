"""The gateway's OpenAI-compatible side, as a device uses it: which models there are, and an answer without any drafts.

CloudError             the message says what to do
├── Unreachable        no connection, or it broke; Intercepted, if somebody else answers
├── KeyRefused         401 or 403
└── Refused            any other error answer
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import httpx2
import msgspec
from msgspec import Struct

from edge.address import is_loopback, require_tls
from edge.errors import EdgeError, Unreachable
from edge.intercepted import by_answer, by_certificate
from edge.protocol.frames import Message, ModelInfo, Sampling

T = TypeVar("T")


class Refused(EdgeError):
    pass


class KeyRefused(Refused):
    pass


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk of a streamed answer brought."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is whole."""

    tokens: int
    reason: str
    bytes_up: int
    """Of the request's body."""
    bytes_down: int
    """Of the answer's body, event-stream framing included."""


class _Delta(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(Struct):
    completion_tokens: int = 0


class _Fault(Struct):
    message: str = "the answer broke off"


class _Chunk(Struct):
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: _Fault | None = None


class _Model(Struct):
    id: str


class _Models(Struct):
    data: tuple[_Model, ...]


class Cloud:
    """A client for one gateway."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 30.0, allow_plain: bool = False) -> None:
        """Raises Insecure if `url` is without TLS outside this machine, unless `allow_plain`."""
        require_tls(url, allow_plain=allow_plain)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # An answer may pause for as long as the queue is long; a connection may not.
        timeout = httpx2.Timeout(timeout_s, read=None)
        self.url = url
        self._http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=timeout, trust_env=not is_loopback(url))

    async def __aenter__(self) -> Cloud:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def models(self) -> tuple[str, ...]:
        """Ids of the models that this key may use."""
        try:
            response = await self._http.get("/v1/models")
        except (httpx2.HTTPError, ssl.SSLError) as error:
            raise _unreachable(self.url, error) from error
        _own(self.url, response)
        if response.is_error:
            raise _refusal(response.status_code, response.content)
        return tuple(model.id for model in _read(response.content, _Models).data)

    async def answer(
        self, messages: Sequence[Message], model: str, sampling: Sampling, max_tokens: int | None
    ) -> AsyncIterator[Piece | Done]:
        """Stream one answer; the last item is Done. Closing the iterator aborts the answer."""
        body = msgspec.json.encode(_request(messages, model, sampling, max_tokens))
        headers = {"Content-Type": "application/json"}
        reason, tokens, down = "", 0, 0
        try:
            async with self._http.stream("POST", "/v1/chat/completions", content=body, headers=headers) as response:
                _own(self.url, response)
                if response.is_error:
                    raise _refusal(response.status_code, await response.aread())
                async for line in response.aiter_lines():
                    down += len(line.encode()) + 1
                    data = line.removeprefix("data:").strip()
                    if not line.startswith("data:") or data == "[DONE]":
                        continue
                    chunk = _read(data, _Chunk)
                    if chunk.error is not None:
                        raise Refused(chunk.error.message)
                    tokens = chunk.usage.completion_tokens if chunk.usage is not None else tokens
                    for choice in chunk.choices:
                        reason = choice.finish_reason or reason
                        if choice.delta is not None and choice.delta.content:
                            yield Piece(choice.delta.content)
        except (httpx2.HTTPError, ssl.SSLError) as error:
            raise _unreachable(self.url, error) from error
        yield Done(tokens, reason, len(body), down)


def choose_model(models: Sequence[ModelInfo], wanted: str) -> ModelInfo:
    """The model named, else the first that the drafter's vocabulary fits, else the first. Raises Refused."""
    if not models:
        raise Refused("The gateway has no model ready.")
    if wanted:
        for model in models:
            if model.id == wanted:
                return model
        raise Refused(f"The gateway has no model {wanted!r}; it has {', '.join(m.id for m in models)}.")
    return next((model for model in models if model.match), models[0])


def _request(messages: Sequence[Message], model: str, sampling: Sampling, max_tokens: int | None) -> dict[str, object]:
    request: dict[str, object] = {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if sampling.seed is not None:
        request["seed"] = sampling.seed
    if max_tokens is not None:
        request["max_tokens"] = max_tokens
    return request


def _read(data: str | bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except ValueError as error:  # DecodeError and UnicodeDecodeError are such
        raise Refused("What came from the gateway's address is not a gateway's answer.") from error


def _unreachable(url: str, error: Exception) -> Unreachable:
    text = f"no gateway answers at {url} ({str(error) or type(error).__name__})"
    return by_certificate(url, error) or Unreachable(text)


def _own(url: str, response: httpx2.Response) -> None:
    """Raises Intercepted if this isn't a gateway's answer."""
    kind, location = response.headers.get("Content-Type", ""), response.headers.get("Location", "")
    if (stranger := by_answer(url, response.status_code, kind=kind, location=location)) is not None:
        raise stranger


def _refusal(status: int, body: bytes) -> Refused:
    """An OpenAI-shaped error answer as an exception."""
    try:
        message = str(msgspec.json.decode(body)["error"]["message"]).rstrip(".")
    except (ValueError, KeyError, TypeError):
        message = f"the gateway answered with HTTP status {status}"
    if status in (401, 403):
        return KeyRefused(f"The gateway refused the API key: {message}. Set PACELINE_API_KEY or give --key.")
    return Refused(f"{message}.")
