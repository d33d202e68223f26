"""What the OpenAPI document says of answers, beyond what FastAPI finds out by itself."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every error, of whatever status."""

    error: ErrorDetail


def _failures(**statuses: str) -> dict[int | str, dict[str, Any]]:
    return {
        int(name.removeprefix("status_")): {"model": ErrorBody, "description": text} for name, text in statuses.items()
    }


FAILURES: Final = _failures(
    status_401="The API key is missing or wrong.",
    status_404="There is no such model, or nothing at this address.",
    status_405="The address takes another method.",
    status_429="Over a quota, or the queue is full: Retry-After says when to come back.",
    status_503="The engine is dead, or the gateway is shutting down.",
)
MANAGEMENT: Final = FAILURES | _failures(
    status_400="A field that can't be honoured; `param` names it.",
    status_403="The gateway has no admin key, so nobody may.",
    status_409="It is there already.",
    status_413="The body is too large.",
)
ANSWERS: Final = (
    FAILURES
    | _failures(
        status_400="A field that can't be honoured; `param` names it.",
        status_413="The body is too large.",
    )
    | {200: {"description": "The answer; with `stream`, server-sent events.", "content": {"text/event-stream": {}}}}
)


def describe(app: FastAPI) -> None:
    """Make the document say what is: a wrong request gets a 400 in OpenAI's shape, and not FastAPI's 422."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes)
            for operations in made["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                made["components"]["schemas"].pop(name, None)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
