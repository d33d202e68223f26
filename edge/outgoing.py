"""What a device says on a socket, message by message: a ping when one is wanted, else a frame of the next stream.

Nothing is queued: a frame is made when the socket can take a message, so no stream can starve another, and what a slow
socket delays is merged. With padding one message leaves a tick, whether or not there is something to say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

from websockets.asyncio.client import ClientConnection

from edge.protocol.errors import FrameTooLarge
from edge.protocol.frames import Codec, EdgeFrame
from edge.protocol.padding import Cadence, Padding, pad
from edge.pulse import Pulse
from edge.roster import Roster

Message = bytes | str
Observe = Callable[[EdgeFrame, int], None]


class Outgoing:
    def __init__(
        self,
        roster: Roster,
        pulse: Pulse,
        codec: Codec,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        observe: Observe | None,
        padding: Padding | None,
    ) -> None:
        self.frame_bytes = codec.frame_bytes
        """The largest frame that the gateway takes, as its `welcome` says."""
        self._roster = roster
        self._pulse = pulse
        self._codec = codec
        self._clock = clock
        self._sleep = sleep
        self._observe = observe
        self._padding = padding

    async def write(self, socket: ClientConnection) -> NoReturn:
        """Until the socket is lost."""
        if self._padding is not None:
            await self._write_at_ticks(socket, self._padding)
        while True:
            await self._roster.ready.wait()
            self._roster.ready.clear()
            await self.flush(socket)

    async def flush(self, socket: ClientConnection) -> None:
        """Send all that there is to say."""
        while (message := self._next()) is not None:
            await socket.send(message)

    async def _write_at_ticks(self, socket: ClientConnection, padding: Padding) -> NoReturn:
        cadence = Cadence(padding.tick_ms / 1000)
        while True:
            if not cadence.running:
                await self._roster.ready.wait()
            await self._sleep(cadence.wait_s(self._clock()))
            message = self._next()
            if message is None:
                self._roster.ready.clear()
                if not cadence.running:
                    continue
                message = self._padded(None, padding)
            await socket.send(message)
            cadence.sent(self._clock(), busy=self._roster.wanted.is_set())

    def _next(self) -> Message | None:
        if (ping := self._pulse.take(self._clock())) is not None:
            return self._enveloped(self._codec.encode(ping))
        while (turn := self._roster.next_frame()) is not None:
            stream, frame = turn
            inner = self._codec.encode(frame)
            length = len(inner) if isinstance(inner, bytes) else len(inner.encode())
            if length > self.frame_bytes:  # the gateway would drop it unread, and not know whose it was
                text = f"this request takes {length} bytes; the gateway takes {self.frame_bytes}"
                stream.fail(FrameTooLarge(text))
                self._roster.mark(stream)
                continue
            message = self._enveloped(inner)
            stream.sent(frame, len(message))
            if self._observe is not None:
                self._observe(frame, len(message))
            return message
        return None

    def _enveloped(self, message: Message) -> Message:
        return message if self._padding is None else self._padded(message, self._padding)

    def _padded(self, message: Message | None, padding: Padding) -> Message:
        return pad(message, padding, text=self._codec.text, most=self.frame_bytes)
