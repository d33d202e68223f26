"""A request's body to what the device answers it by. Pure but for the tokenizer; call it in a thread.

The checks and their messages are those of the gateway, for they are the same code (edge/openai).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from pydantic import ValidationError

from edge.openai.errors import Rejected, rejected
from edge.openai.job import Job, chat_jobs, completion_jobs
from edge.openai.render import Renderer, chat_renderer
from edge.openai.render_completions import completion_renderer
from edge.openai.render_responses import responses_renderer
from edge.openai.responses import ResponsesRequest, response_jobs
from edge.openai.schemas import ChatRequest, CompletionRequest
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Policy

Endpoint = Literal["chat/completions", "completions", "responses"]
ENDPOINTS: Final[tuple[Endpoint, ...]] = ("chat/completions", "completions", "responses")


class Wishes(Struct, frozen=True, forbid_unknown_fields=True):
    """`paceline` in a body (`extra_body` in OpenAI's clients). None: as the device is set up."""

    policy: Policy | None = None
    privacy: Literal["full", "redacted", "draft_only", "local"] | None = None
    draft_sampling: Literal["coupled", "top1"] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A body, and the wishes that were in it. The gateway gets the first without the second."""

    body: dict[str, Any]
    wishes: Wishes

    @property
    def model(self) -> str:
        model = self.body.get("model")
        return model if isinstance(model, str) else ""

    @property
    def stream(self) -> bool:
        return self.body.get("stream") is True


@dataclass(frozen=True, slots=True)
class Plan:
    """How to answer here: a job for each choice, and what makes bytes of their tokens."""

    jobs: Sequence[Job]
    renderer: Renderer


def read(data: bytes) -> Question:
    """Raises Rejected."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is one
        raise Rejected("The body is not JSON.") from error
    if not isinstance(body, dict):
        raise Rejected("The body is not a JSON object.")
    given = body.pop("paceline", None)
    try:
        wishes = Wishes() if given is None else msgspec.convert(given, Wishes)
    except msgspec.ValidationError as error:
        raise Rejected(f"Invalid 'paceline': {error}.", "paceline") from error
    return Question(body, wishes)


def plan(
    endpoint: Endpoint,
    question: Question,
    vocabulary: Vocabulary,
    *,
    context: int,
    seed: int,
    new_id: Callable[[str], str],
    created: int,
) -> Plan:
    """`context`: tokens of prompt and output. `seed`: if the request has none. Raises Rejected."""
    try:
        if endpoint == "chat/completions":
            chat = ChatRequest.model_validate(question.body)
            jobs = chat_jobs(chat, vocabulary, context=context, seed=seed)
            return Plan(jobs, chat_renderer(chat, jobs, vocabulary, id=new_id("chatcmpl-"), created=created))
        if endpoint == "responses":
            wanted = ResponsesRequest.model_validate(question.body)
            jobs = response_jobs(wanted, vocabulary, context=context, seed=seed)
            return Plan(jobs, responses_renderer(wanted, jobs, vocabulary, id=new_id("resp_"), created=created))
        completion = CompletionRequest.model_validate(question.body)
    except ValidationError as error:
        raise rejected(error.errors()) from error
    jobs = completion_jobs(completion, vocabulary, context=context, seed=seed)
    return Plan(jobs, completion_renderer(completion, jobs, vocabulary, id=new_id("cmpl-"), created=created))
