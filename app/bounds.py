"""Uvicorn's HTTP and WebSocket protocols, with the bounds that uvicorn leaves to a proxy in front.

What a peer could otherwise do without a key, and without end:

    open a connection and send its request a byte at a time       the head has `hello_s` to come
    send a message in fragments of nothing                        a message has `MOST_FRAGMENTS`
    send pings and read no pongs                                  while the peer doesn't read, pongs are left out
    send text that isn't UTF-8, for a traceback in the log each   the socket is closed with 1007, and that is all
    give a body two lengths, for a proxy in front to be misled    400, and the connection is closed (RFC 9112, 6.1)
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

MOST_FRAGMENTS: Final = 1024


class Http(H11Protocol):
    """`hello_s`: what the head of a request may take, the first and any later one, in seconds."""

    hello_s: float = 10.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._expect()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._arrived()
        elif self._late is None and self.cycle is not None and self.cycle.response_complete:
            self._expect()  # uvicorn has just stopped its own timer

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._arrived()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._late = self.loop.call_later(self.hello_s, self.transport.close)

    def _arrived(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class WebSocket(WebSocketsSansIOProtocol):
    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MOST_FRAGMENTS:
            self._fail(CloseCode.MESSAGE_TOO_BIG)
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(self.frames):
            self._fail(CloseCode.INVALID_DATA)
        else:
            super().send_receive_event_to_app()

    def _fail(self, code: CloseCode) -> None:
        self.frames = []
        if not self.close_sent:
            self.conn.fail(code)
            self.handle_parser_exception()


def _is_utf8(fragments: list[bytes]) -> bool:
    try:
        b"".join(fragments).decode()
    except UnicodeDecodeError:
        return False
    return True


def http(hello_s: float) -> type[Http]:
    """The class for one server: uvicorn makes the instances itself."""
    return type("Http", (Http,), {"hello_s": hello_s})


class OneLength:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope["headers"]} if scope["type"] == "http" else set()
        if {b"content-length", b"transfer-encoding"} <= names:
            refusal = PlainTextResponse("two lengths\n", status_code=400, headers={"Connection": "close"})
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)
