"""One edge's WebSocket, frame by frame: encoded, counted, padded as the edge pads its own (paced.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from app.api.paced import Message, PacedSender
from app.telemetry import SocketBytes
from edge.protocol.frames import CloudFrame, Codec, EdgeFrame
from edge.protocol.padding import Padded, Padding


class Wire:
    """Sending raises WebSocketDisconnect once the socket is gone."""

    def __init__(
        self,
        websocket: WebSocket,
        codec: Codec,
        counted: SocketBytes,
        *,
        busy: Callable[[], bool],
        spawn: Callable[[Awaitable[None]], asyncio.Task[None]],
    ) -> None:
        """`busy`: whether streams run on the socket; `spawn` keeps a task until it is done."""
        self.counted = counted
        self.closed = False
        self._websocket = websocket
        self.codec = codec
        self._busy = busy
        self._spawn = spawn
        self._paced: PacedSender | None = None
        self._pacing: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        """The next message. Raises WebSocketDisconnect."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005), message.get("reason"))
        data: Message = message["bytes"] if message.get("bytes") is not None else message["text"]
        self.counted.up.inc(len(data))
        return data

    def decode(self, data: Message) -> EdgeFrame | None:
        """The frame in a message; None: an envelope with nothing in it. Raises as the codec does."""
        found: EdgeFrame | Padded = self.codec.decode(data)
        if not isinstance(found, Padded):
            return found
        self._pad_like(found)
        frame: EdgeFrame | None = self.codec.unwrap(found)
        return frame

    async def send(self, frame: CloudFrame) -> None:
        data = self.codec.encode(frame)
        await (self._transmit(data) if self._paced is None else self._paced.send(data))

    async def close(self, code: int, reason: str) -> None:
        """Idempotent. `receive` then reports the disconnection."""
        if self.closed:
            return
        self.closed = True
        try:
            await self._websocket.close(code, reason)
        except (WebSocketDisconnect, RuntimeError):
            return  # it was gone already

    def leave(self) -> None:
        """Nothing is sent any more."""
        self.closed = True
        if self._pacing is not None:
            self._pacing.cancel()

    def _pad_like(self, envelope: Padded) -> None:
        """The first envelope decides: a socket's padding doesn't change."""
        if self._paced is not None:
            return
        padding = Padding(envelope.size, envelope.tick_ms)
        self._paced = PacedSender(padding, self._transmit, self._busy, text=self.codec.text)
        self._pacing = self._spawn(self._paced.run())

    async def _transmit(self, data: Message) -> None:
        self.counted.down.inc(len(data))
        if self.closed or self._websocket.application_state is WebSocketState.DISCONNECTED:
            raise WebSocketDisconnect(1006)
        if isinstance(data, str):
            await self._websocket.send_text(data)
        else:
            await self._websocket.send_bytes(data)
