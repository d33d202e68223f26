"""What an HTTP client can be told went wrong, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.

    GatewayError                       status, type, code; `param` names the field of the request
    ├── BadRequest                 400 invalid_request_error   a field that can't be honoured; edge/openai/errors.py
    ├── InvalidKey                 401 invalid_request_error, as OpenAI has it
    ├── Forbidden                  403
    ├── NotFound                   404
    │   └── ModelNotFound          404 model_not_found
    ├── WrongMethod            405 method_not_supported        with Allow
    ├── BodyTooLarge               413
    ├── Conflict                   409                         it is there already
    ├── TooBusy                    429 rate_limit_error        with Retry-After
    │   └── RateLimited            429 rate_limit_exceeded     over the tenant's own quota
    ├── Unavailable                503 server_error            the engine is dead
    │   ├── NoDatabase             503 database_unreachable
    │   └── ShuttingDown           503
    └── Internal                   500 server_error            all else: a generic body, the traceback is logged

Errors of the wire protocol are `edge.protocol.errors`; those that the engine raises are translated by `from_protocol`.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from edge.openai.errors import Rejected, rejected
from edge.protocol import errors as protocol


class GatewayError(Exception):
    """Everything that a client may be told. `message` is sent; nothing else of an exception ever is."""

    status = 500
    type = "server_error"
    code: str | None = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"Retry-After": str(max(1, ceil(self.retry_after_s)))}


class BadRequest(GatewayError):
    status = 400
    type = "invalid_request_error"
    code = "invalid_value"


class InvalidKey(GatewayError):
    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"

    def headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class Forbidden(GatewayError):
    status = 403
    type = "invalid_request_error"
    code = "forbidden"


class NotFound(GatewayError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"


class WrongMethod(GatewayError):
    """The address is right."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_supported"

    def __init__(self, allowed: Collection[str]) -> None:
        super().__init__(f"Only {' and '.join(sorted(allowed))} requests are accepted here.")
        self._allowed = ", ".join(sorted(allowed))

    def headers(self) -> dict[str, str]:
        return {"Allow": self._allowed}


class ModelNotFound(NotFound):
    code = "model_not_found"


class Conflict(GatewayError):
    status = 409
    type = "invalid_request_error"
    code = "conflict"


class BodyTooLarge(GatewayError):
    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class TooBusy(GatewayError):
    status = 429
    type = "rate_limit_error"
    code = "overloaded"


class RateLimited(TooBusy):
    code = "rate_limit_exceeded"


class Unavailable(GatewayError):
    status = 503
    code = "engine_failed"


class ShuttingDown(Unavailable):
    code = "shutting_down"


class NoDatabase(Unavailable):
    code = "database_unreachable"


class Internal(GatewayError):
    """An error that nobody foresaw."""


def from_protocol(error: protocol.ProtocolError) -> GatewayError:
    """What an HTTP client is told of an error that `Engine.submit` raised."""
    if isinstance(error, protocol.RateLimited):
        return RateLimited(error.message, retry_after_s=error.retry_after_s)
    if isinstance(error, protocol.Overloaded):
        return TooBusy(error.message, retry_after_s=error.retry_after_s)
    if isinstance(error, protocol.EngineFailed):
        return Unavailable(error.message)
    return BadRequest(error.message)


def from_rejected(error: Rejected) -> GatewayError:
    """A field of a request that can't be honoured."""
    known = BadRequest(error.message, param=error.param)
    known.code = error.code
    return known


def from_http(error: HTTPException) -> GatewayError:
    """A client's mistake that the framework found."""
    if error.status_code == 404:
        return NotFound("There is nothing at this address.")
    if error.status_code == 405:
        return WrongMethod((error.headers or {}).get("Allow", "other").split(", "))
    known = BodyTooLarge(str(error.detail)) if error.status_code == 413 else BadRequest(f"{error.detail}.")
    known.status = error.status_code
    return known


def install(app: FastAPI) -> None:
    """The one place where exceptions become responses."""

    async def handle(request: Request, error: Exception) -> Response:
        # Of an unknown exception Starlette sends this response and raises it again: the server logs the traceback.
        known = translate(error)
        if known.status >= 500 or known.status == 429:
            request.app.state.gateway.metrics.note(request.url.path, known.code or known.type)
        return JSONResponse(known.body(), status_code=known.status, headers=known.headers())

    for kind in (GatewayError, protocol.ProtocolError, RequestValidationError, Rejected, HTTPException, Exception):
        app.add_exception_handler(kind, handle)


def translate(error: Exception) -> GatewayError:
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, protocol.ProtocolError):
        return from_protocol(error)
    if isinstance(error, Rejected):
        return from_rejected(error)
    if isinstance(error, RequestValidationError):
        return from_rejected(rejected(error.errors(), skip=1))
    if isinstance(error, HTTPException) and error.status_code < 500:
        return from_http(error)
    return Internal("The gateway failed. Its log says why.")
