"""A relay that keeps what a device sends, from the bytes of TCP on: it shares no code with what it watches.

WebSocket messages are unmasked by RFC 6455, section 5; everything before the handshake's end, or of a connection that
never became a WebSocket, is HTTP.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Capture:
    """A port in front of `port`. Use as an async context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: list[bytearray] = []

    @property
    def url(self) -> str:
        assert self._server is not None  # noqa: S101
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None  # noqa: S101
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def messages(self) -> list[bytes]:
        """Payloads of the WebSocket messages that left, in order."""
        return [message for sent in self.connections for message in _messages(bytes(sent))]

    def bodies(self) -> list[bytes]:
        """Bodies of the HTTP POSTs that left, one a connection."""
        found = []
        for sent in self.connections:
            for part in bytes(sent).split(b"POST ")[1:]:
                head, _, body = part.partition(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
                found.append(body[:length])
        return found

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        sent = bytearray()
        self.connections.append(sent)
        for work in (_copy(reader, up_writer, sent), _copy(up_reader, writer, None)):
            task = asyncio.create_task(work)
            self._tasks.add(task)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray | None) -> None:
    try:
        while data := await reader.read(1 << 16):
            if kept is not None:
                kept += data
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # a side that went away: the other is told below
    finally:
        writer.close()


def _messages(data: bytes) -> list[bytes]:
    head, _, rest = data.partition(b"\r\n\r\n")
    if b"upgrade: websocket" not in head.lower():
        return []
    messages = []
    while len(rest) >= 2:
        opcode, length, at = rest[0] & 15, rest[1] & 127, 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length, at = int.from_bytes(rest[at : at + size]), at + size
        mask, payload = rest[at : at + 4], rest[at + 4 : at + 4 + length]
        if opcode in (1, 2):
            messages.append(bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)))
        rest = rest[at + 4 + length :]
    return messages
