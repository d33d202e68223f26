"""Sockets between devices and gateways: messages in order, late, and sometimes not at all.

A `Link` is one WebSocket. Each way holds what was sent until its time has come and the receiver takes it; a sender
whose window is full waits. A link that is cut tells each side when that side would find out, which may be never: a
silent network looks like a slow one.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from tests.sim.loop import Process

Message = bytes | str
Trace = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The end of what one side sends."""

    code: int
    reason: str = ""


class Lost(OSError):
    """This side knows that the link is no more."""


@dataclass(frozen=True, slots=True)
class Weather:
    delay_s: tuple[float, float]
    """Of one message, drawn anew for each."""
    window: int
    """Bytes on their way, or arrived and not taken, past which a sender waits."""


@dataclass(eq=False)
class Way:
    """One direction of a link."""

    name: str
    weather: Weather
    random: Random
    trace: Trace
    lost: bool = False
    """The receiver knows that the link is no more."""
    shut: bool = False
    """So does the sender."""
    silent: bool = False
    """Nothing arrives any more."""
    stalled_until: float = 0.0
    on_goodbye: Callable[[], None] = lambda: None
    """The sender has closed; told as soon as that arrives, whether or not the receiver reads."""
    _bytes: int = 0
    _travelling: deque[tuple[float, Message | Goodbye]] = field(default_factory=deque)
    _arrived: deque[Message | Goodbye] = field(default_factory=deque)
    _changed: dict[asyncio.Future[None], None] = field(default_factory=dict)

    async def send(self, message: Message | Goodbye) -> None:
        """Raises Lost."""
        while self._bytes > self.weather.window and not self.shut and isinstance(message, bytes | str):
            await self._change()
        if self.shut:
            raise Lost("the link is cut")
        self.post(message)

    def post(self, message: Message | Goodbye) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self.random.uniform(*self.weather.delay_s)
        if self._travelling:
            due = max(due, self._travelling[-1][0])
        self._travelling.append((due, message))
        self._bytes += _size(message)
        _as_nobody(loop.call_at, due, self._arrive)

    async def receive(self) -> Message | Goodbye:
        """Raises Lost, once all that had arrived before was taken."""
        while not self._arrived and not self.lost:
            await self._change()
        if not self._arrived:
            raise Lost("the link is cut")
        message = self._arrived.popleft()
        self._bytes -= _size(message)
        self.wake()
        return message

    def stall(self, seconds: float) -> None:
        """Nothing arrives for so long; then all of it does."""
        loop = asyncio.get_running_loop()
        self.stalled_until = max(self.stalled_until, loop.time() + seconds)
        _as_nobody(loop.call_at, self.stalled_until, self._arrive)

    def wake(self) -> None:
        for future in self._changed:
            if not future.done():
                future.set_result(None)

    def _arrive(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self.stalled_until:
            return
        while self._travelling and self._travelling[0][0] <= now:
            message = self._travelling.popleft()[1]
            if not self.silent and not self.lost:
                self.trace("net", self.name, message)
                self._arrived.append(message)
                if isinstance(message, Goodbye):
                    self.on_goodbye()
        self.wake()

    async def _change(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._changed[future] = None
        try:
            await future
        finally:
            del self._changed[future]


class Link:
    def __init__(self, number: int, device: Process, gateway: Process, weather: Weather, random: Random, trace: Trace):
        self.number = number
        self.device, self.gateway = device, gateway
        self.up = Way(f"{number}↑", weather, random, trace)
        self.down = Way(f"{number}↓", weather, random, trace)
        self.up.on_goodbye = self._device_left

    def cut(self, *, device_in: float | None = 0.0, gateway_in: float | None = 0.0) -> None:
        """What is on its way is lost. Each side finds out after so many seconds; None: never by itself."""
        self.up.silent = self.down.silent = True
        loop = asyncio.get_running_loop()
        for after_s, tell in ((device_in, self.tell_device), (gateway_in, self.tell_gateway)):
            if after_s is not None:
                _as_nobody(loop.call_later, after_s, tell)

    def _device_left(self) -> None:
        """What the gateway sends from now on would be reset."""
        self.down.shut = True
        self.down.wake()

    def tell_device(self) -> None:
        self.up.shut = self.down.lost = True
        self.up.wake()
        self.down.wake()

    def tell_gateway(self) -> None:
        self.down.shut = self.up.lost = True
        self.up.wake()
        self.down.wake()


class DeviceEnd:
    """What `websockets` gives a client, as far as edge.connection uses it."""

    def __init__(self, link: Link, subprotocol: str) -> None:
        self.link = link
        self.subprotocol = subprotocol
        self._closed: Goodbye | None = None

    @property
    def transport(self) -> DeviceEnd:
        return self

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("127.0.0.1", self.link.number)

    async def send(self, message: Message) -> None:
        try:
            await self.link.up.send(message)
        except Lost as lost:
            raise self._error() from lost

    async def recv(self) -> Message:
        try:
            message = await self.link.down.receive()
        except Lost as lost:
            raise self._error() from lost
        if isinstance(message, Goodbye):
            self._closed = message
            self._leave()
            raise self._error()
        return message

    async def close(self) -> None:
        if not self.link.up.shut:
            self.link.up.post(Goodbye(1000))
            self._leave()

    def abort(self) -> None:
        if not self.link.up.shut:
            self.link.up.post(Goodbye(1006))
            self._leave()

    def _leave(self) -> None:
        self.link.tell_device()

    def _error(self) -> ConnectionClosedError:
        close = None if self._closed is None else Close(self._closed.code, self._closed.reason)
        return ConnectionClosedError(close, None)


class GatewayEnd:
    """The link as an ASGI application sees it, and what a server knows besides."""

    def __init__(self, link: Link, subprotocol: str) -> None:
        self.link = link
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """101, or the HTTP status of a refusal."""
        self.scope: dict[str, Any] = {
            "type": "websocket",
            "path": "/v1/verify",
            "query_string": b"",
            "headers": [(b"host", b"gateway")],
            "subprotocols": [subprotocol],
            "extensions": {"websocket.http.response": {}},
        }
        self._connected = False
        self._left: Goodbye | None = None

    async def receive(self) -> dict[str, Any]:
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        if self._left is None:
            try:
                message = await self.link.up.receive()
            except Lost:
                message = Goodbye(1006)
            if isinstance(message, str):
                return {"type": "websocket.receive", "text": message}
            if isinstance(message, bytes):
                return {"type": "websocket.receive", "bytes": message}
            self._left = message
            self.link.tell_gateway()
        return {"type": "websocket.disconnect", "code": self._left.code, "reason": self._left.reason}

    async def send(self, message: Any) -> None:
        kind = message["type"]
        if kind == "websocket.accept":
            self._answer(101)
        elif kind == "websocket.http.response.start":
            self._answer(message["status"])
        elif kind == "websocket.close":
            self.close(message.get("code", 1000), message.get("reason") or "")
        elif kind == "websocket.send":
            data = message.get("bytes")
            await self.link.down.send(message["text"] if data is None else data)

    def close(self, code: int, reason: str = "") -> None:
        if not self.link.down.shut:
            self.link.down.post(Goodbye(code, reason))
        self._left = self._left or Goodbye(code, reason)
        self.link.tell_gateway()

    def _answer(self, status: int) -> None:
        if not self.answer.done():
            self.answer.set_result(status)


def _size(message: Message | Goodbye) -> int:
    return len(message) if isinstance(message, bytes | str) else 0


def _as_nobody(schedule: Callable[..., Any], *args: Any) -> None:
    """The network is no process: it is never frozen, and outlives all."""
    contextvars.Context().run(schedule, *args)
