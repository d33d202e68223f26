"""What a padded socket sends: one message a tick (edge/protocol/padding.py), what there is to say or nothing."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocketDisconnect

from edge.protocol.frames import EDGE_FRAME_BYTES
from edge.protocol.padding import Cadence, Padding, pad

Message = bytes | str


class PacedSender:
    """Whoever has a message waits in `send` until its tick has come, so at most one a task is queued."""

    def __init__(
        self, padding: Padding, transmit: Callable[[Message], Awaitable[None]], busy: Callable[[], bool], *, text: bool
    ) -> None:
        """`busy`: whether streams run on the socket."""
        self.padding = padding
        self._transmit = transmit
        self._busy = busy
        self._text = text
        self._waiting: deque[tuple[Message, asyncio.Future[None]]] = deque()
        self._wanted = asyncio.Event()
        self._lost = False

    async def send(self, message: Message) -> None:
        """Raises what sending it raised; WebSocketDisconnect if nothing is sent any more."""
        if self._lost:
            raise WebSocketDisconnect(1006)
        sent = asyncio.get_running_loop().create_future()
        self._waiting.append((message, sent))
        self._wanted.set()
        await sent

    async def run(self) -> None:
        """Until the socket is lost: then those who wait are told, and what broke it is raised."""
        cadence = Cadence(self.padding.tick_ms / 1000)
        try:
            while True:
                if not cadence.running and not self._waiting:
                    self._wanted.clear()
                    await self._wanted.wait()
                await asyncio.sleep(cadence.wait_s(time.monotonic()))
                await self._tick()
                cadence.sent(time.monotonic(), busy=self._busy())
        finally:
            self._lost = True
            while self._waiting:
                self._waiting.popleft()[1].cancel()

    async def _tick(self) -> None:
        message, sent = self._next()
        try:
            await self._transmit(pad(message, self.padding, text=self._text, most=EDGE_FRAME_BYTES))
        except Exception as error:
            if sent is not None and not sent.done():
                sent.set_exception(error)
            raise
        if sent is not None and not sent.done():
            sent.set_result(None)

    def _next(self) -> tuple[Message | None, asyncio.Future[None] | None]:
        while self._waiting:
            message, sent = self._waiting.popleft()
            if not sent.done():  # its task was not cancelled meanwhile
                return message, sent
        return None, None
