"""The endpoint's HTTP side (Starlette): addresses, the local key, bodies, headers, and clients that leave.

It listens on loopback. Web pages can reach that too, so a request from one is refused: its Host must be this machine's
name, which DNS rebinding can't fake, and its body must be application/json, which browsers don't send elsewhere
without asking, and nobody here gives leave.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from edge.address import is_loopback
from edge.openai.errors import Rejected
from edge.serve.dispatch import Dispatcher, NoPath, Served, error_body
from edge.serve.question import ENDPOINTS, Name, read

PATH_HEADER: Final = "x-paceline-path"
WHY_HEADER: Final = "x-paceline-why"
_BODY_BYTES: Final = 8 << 20
_LEFT: Final = 499
T = TypeVar("T")


def create_app(dispatcher: Dispatcher, *, key: str = "") -> Starlette:
    """`key`: what clients must send; empty: nothing, and only names of this machine are answered to."""
    door = _Door(key)

    def answering(endpoint: Name) -> Callable[[Request], Awaitable[Response]]:
        async def post(request: Request) -> Response:
            door.check(request)
            question = read(await _body(request))
            served = await _unless_left(request, dispatcher.answer(endpoint, question))
            return Response(status_code=_LEFT) if served is None else _Sent(served)

        return post

    async def models(request: Request) -> Response:
        door.check(request)
        path: str = request.scope["path"]
        if not {".", ".."}.isdisjoint(path.split("/")):  # with this device's key nothing else is asked for
            raise HTTPException(404)
        return _Sent(await dispatcher.fetch(quote(path)))

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    return Starlette(
        routes=[
            *(Route(f"/v1/{name}", answering(name), methods=["POST"]) for name in ENDPOINTS),
            Route("/v1/models", models),
            Route("/v1/models/{model:path}", models),
            Route("/health", health),
        ],
        exception_handlers={
            Rejected: _rejected,
            _Refused: _refused,
            NoPath: _no_path,
            404: _nothing_here,
            405: _wrong_method,
            500: _failed,
        },
    )


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class _Door:
    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def check(self, request: Request) -> None:
        """Raises _Refused."""
        if self._key:
            given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
            if not hmac.compare_digest(given, self._key):
                raise _Refused(401, "invalid_api_key", "The key is not this endpoint's (PACELINE_SERVE_KEY).")
        elif not is_loopback(f"http://{request.headers.get('host', '')}"):
            raise _Refused(403, "forbidden_host", "Without a key only this machine's own names are answered to.")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method == "POST" and kind != "application/json":
            raise _Refused(415, "unsupported_media_type", "The body must be application/json, and be declared so.")


async def _body(request: Request) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > _BODY_BYTES:
            raise _Refused(413, "body_too_large", f"The body is over {_BODY_BYTES} bytes.")
    return bytes(data)


class _Sent(Response):
    """A response as it comes. When the client leaves, or it fails, it is closed all the same."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.background = None
        self.status_code = served.status
        headers = dict(served.headers) | {PATH_HEADER: served.path, "x-accel-buffering": "no"}
        if served.why:
            headers[WHY_HEADER] = served.why.encode("ascii", "replace").decode().replace("\n", " ")[:400]
        self.init_headers(headers)
        self.raw_headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending, leaving = asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._served.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self._served.body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """The work's result; None, and the work is cancelled, if the client leaves before it is there."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


def _json(status: int, body: object) -> Response:
    return Response(json.dumps(body), status, media_type="application/json")


async def _rejected(request: Request, error: Exception) -> Response:
    assert isinstance(error, Rejected)  # noqa: S101
    return _json(400, error.body())


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, _Refused)  # noqa: S101
    return _json(error.status, error_body(error.message, "invalid_request_error", error.code))


async def _no_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, NoPath)  # noqa: S101
    return _json(503, error_body(error.message, "server_error", "no_path"))


async def _nothing_here(request: Request, error: Exception) -> Response:
    return _json(404, error_body("There is nothing at this address.", "invalid_request_error", "not_found"))


async def _wrong_method(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    allowed = sorted({*(error.headers or {}).get("Allow", "").split(", ")} - {"HEAD"})
    words = f"Only {' and '.join(allowed)} requests are accepted here."
    answer = _json(405, error_body(words, "invalid_request_error", "method_not_supported"))
    answer.headers["Allow"] = ", ".join(allowed)
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    return _json(500, error_body("The endpoint failed. Its log says why.", "server_error", "internal_error"))
