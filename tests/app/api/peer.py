"""An edge of a few lines: frames in, frames out, nothing decided."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from edge.protocol import frames
from tests.app.serving import MODEL, Running

F = TypeVar("F", bound=frames.Frame)


class Peer:
    def __init__(self, socket: ClientConnection, codec: frames.Codec) -> None:
        self.socket = socket
        self.codec = codec

    async def send(self, *sent: frames.Frame) -> None:
        for frame in sent:
            await self.socket.send(self.codec.encode(frame))

    async def frame(self) -> Any:
        async with asyncio.timeout(10):
            return self.codec.decode(await self.socket.recv())

    async def expect(self, kind: type[F], *, stream: int | None = None) -> F:
        """The next frame of this kind (and stream); others before it are passed over."""
        while True:
            frame = await self.frame()
            if isinstance(frame, kind) and (stream is None or getattr(frame, "stream", None) == stream):
                return frame

    async def output(self, stream: int, held: list[int] | None = None) -> tuple[list[int], frames.Finish]:
        """All tokens of a stream up to its finish. A gap or a contradiction fails."""
        tokens = held or []
        while True:
            frame = await self.frame()
            if isinstance(frame, frames.Error):
                raise AssertionError(frame)
            if isinstance(frame, frames.Commit) and frame.stream == stream:
                assert frame.start <= len(tokens)
                assert tokens[frame.start :] == list(frame.tokens[: len(tokens) - frame.start])
                tokens[frame.start :] = frame.tokens
            if isinstance(frame, frames.Finish) and frame.stream == stream:
                assert frame.length == len(tokens)
                return tokens, frame

    async def closed(self) -> tuple[list[Any], int]:
        """The frames until the gateway closes the socket, and the close code."""
        seen = []
        with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012
            while True:
                seen.append(await self.frame())
        assert closed.value.rcvd is not None
        return seen, closed.value.rcvd.code


@contextlib.asynccontextmanager
async def dialled(running: Running, subprotocol: str = frames.MSGPACK) -> AsyncIterator[Peer]:
    """A socket on which nothing has been said."""
    url = running.url.replace("http", "ws") + "/v1/verify"
    async with connect(url, subprotocols=[Subprotocol(subprotocol)], compression=None, max_size=None) as socket:
        yield Peer(socket, frames.edge_codec(subprotocol))


@contextlib.asynccontextmanager
async def greeted(
    running: Running, subprotocol: str = frames.MSGPACK, *, fingerprint: str = "", key: str = ""
) -> AsyncIterator[Peer]:
    async with dialled(running, subprotocol) as peer:
        await peer.send(frames.Hello(frames.VERSION, auth=key or running.key, fingerprint=fingerprint))
        await peer.expect(frames.Welcome)
        yield peer


PROMPT = (104, 101, 108, 108, 111)


def opening(stream: int = 1, **fields: Any) -> frames.Open:
    defaults: dict[str, Any] = {
        "model": MODEL,
        "prompt": PROMPT,
        "sampling": frames.Sampling(temperature=0),
        "max_tokens": 30,
    }
    return frames.Open(stream, **(defaults | fields))


def reference(running: Running, count: int = 30, prompt: tuple[int, ...] = PROMPT) -> list[int]:
    return running.script.greedy(prompt, count)
