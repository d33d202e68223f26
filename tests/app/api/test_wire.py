from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from fastapi import WebSocket
from prometheus_client import Counter
from starlette.websockets import WebSocketDisconnect

from app.api.wire import Wire
from app.telemetry import SocketBytes
from edge.protocol.frames import SUBPROTOCOLS, Pong, cloud_codec


async def test_a_socket_that_went_while_something_was_sent_is_told_as_gone_every_time() -> None:
    """Found by simulation (seed 855): the second time it was taken for a fault of ours."""

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send":
            raise OSError("the connection is gone")

    def spawn(work: Awaitable[None]) -> asyncio.Task[None]:
        raise AssertionError("nothing is padded here")

    websocket = WebSocket({"type": "websocket", "headers": []}, receive, send)
    await websocket.accept()
    counter = Counter("wire_bytes", "Of this test.", registry=None)
    wire = Wire(websocket, cloud_codec(SUBPROTOCOLS[0]), SocketBytes(counter, counter), busy=bool, spawn=spawn)
    for _ in range(2):
        with pytest.raises(WebSocketDisconnect):
            await wire.send(Pong(1))
