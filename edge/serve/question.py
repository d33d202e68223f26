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

from edge.openai.endpoints import CHAT, COMPLETIONS, RESPONSES, Endpoint
from edge.openai.errors import Rejected, rejected
from edge.openai.job import Job
from edge.openai.render import Renderer
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Policy

Name = Literal["chat/completions", "completions", "responses"]
ENDPOINTS: Final[dict[Name, Endpoint[Any]]] = {
    "chat/completions": CHAT,
    "completions": COMPLETIONS,
    "responses": RESPONSES,
}


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
    name: Name,
    question: Question,
    vocabulary: Vocabulary,
    *,
    context: int,
    seed: int,
    new_id: Callable[[str], str],
    created: int,
) -> Plan:
    """`context`: tokens of prompt and output. `seed`: if the request has none. Raises Rejected."""
    endpoint = ENDPOINTS[name]
    try:
        request = endpoint.schema.model_validate(question.body)
    except ValidationError as error:
        raise rejected(error.errors()) from error
    jobs = endpoint.jobs(request, vocabulary, context=context, seed=seed)
    return Plan(jobs, endpoint.renderer(request, jobs, vocabulary, id=new_id(endpoint.prefix), created=created))
