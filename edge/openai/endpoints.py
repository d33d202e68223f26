"""Of each of OpenAI's addresses: the schema of its requests, their jobs, and the renderer of its answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from edge.openai.job import Job, chat_jobs, completion_jobs
from edge.openai.render import Renderer, chat_renderer
from edge.openai.render_completions import completion_renderer
from edge.openai.render_responses import responses_renderer
from edge.openai.responses import ResponsesRequest, response_jobs
from edge.openai.schemas import ChatRequest, CompletionRequest, Generating
from edge.openai.vocabulary import Vocabulary

R = TypeVar("R", bound=Generating)
R_contra = TypeVar("R_contra", bound=Generating, contravariant=True)


class _Jobs(Protocol[R_contra]):
    def __call__(self, request: R_contra, vocabulary: Vocabulary, /, *, context: int, seed: int) -> list[Job]: ...


class _Rendering(Protocol[R_contra]):
    def __call__(
        self,
        request: R_contra,
        jobs: Sequence[Job],
        vocabulary: Vocabulary,
        /,
        *,
        id: str,  # noqa: A002
        created: int,
    ) -> Renderer: ...


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[R]):
    schema: type[R]
    jobs: _Jobs[R]
    """`context`: tokens of prompt and output; `seed`: if the request has none. Raises Rejected. Call it in a thread."""
    renderer: _Rendering[R]
    prefix: str
    """Of its answers' ids."""


CHAT: Final = Endpoint(ChatRequest, chat_jobs, chat_renderer, "chatcmpl-")
COMPLETIONS: Final = Endpoint(CompletionRequest, completion_jobs, completion_renderer, "cmpl-")
RESPONSES: Final = Endpoint(ResponsesRequest, response_jobs, responses_renderer, "resp_")
