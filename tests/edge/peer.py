"""The other end of a connection, played by hand: a WebSocket server whose every frame the test decides."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from edge.protocol.drafting import DraftingSession, Reconciliation
from edge.protocol.frames import (
    SUBPROTOCOLS,
    VERSION,
    CloudFrame,
    Codec,
    Commit,
    EdgeFrame,
    Finish,
    Hello,
    Limits,
    ModelInfo,
    Open,
    Opened,
    Ping,
    Pong,
    Sampling,
    Usage,
    Welcome,
    cloud_codec,
)
from edge.protocol.ledger import Ledger
from edge.stream import Stream

LIMITS = Limits()
MODEL = ModelInfo("m", "f" * 64, 512, 2048, match=True)


class Peer:
    """One socket, from the cloud's side."""

    def __init__(self, socket: ServerConnection, number: int) -> None:
        self.number = number
        """How many sockets came before."""
        self.hello: Hello | None = None
        self.answers_pings = True
        self._socket = socket
        self._codec: Codec = cloud_codec(socket.subprotocol or "")

    async def greet(self, limits: Limits = LIMITS) -> None:
        hello = await self.receive()
        assert isinstance(hello, Hello)
        self.hello = hello
        await self.send(Welcome(VERSION, (MODEL,), limits))

    async def receive(self) -> EdgeFrame:
        """The next frame, pings aside. Raises ConnectionClosed."""
        while True:
            frame: EdgeFrame = self._codec.decode(await self._socket.recv())
            if not isinstance(frame, Ping):
                return frame
            if self.answers_pings:
                await self.send(Pong(frame.nonce))

    async def take(self, kind: type[Any]) -> Any:
        frame = await self.receive()
        assert isinstance(frame, kind), frame
        return frame

    async def send(self, *frames: CloudFrame) -> None:
        for frame in frames:
            await self._socket.send(self._codec.encode(frame))

    async def send_raw(self, data: bytes) -> None:
        await self._socket.send(data)

    async def close(self, code: int, reason: str = "") -> None:
        await self._socket.close(code, reason)

    def cut(self) -> None:
        self._socket.transport.abort()

    async def gone(self) -> None:
        """Serve until the edge leaves."""
        try:
            while True:
                await self.receive()
        except ConnectionClosed:
            return


Play = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def playing(play: Play, *, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve `play`, once per socket; gives the URL. What a play raises, losing its socket aside, fails the test."""
    failures: list[Exception] = []
    count = 0

    async def handle(socket: ServerConnection) -> None:
        nonlocal count
        peer, count = Peer(socket, count), count + 1
        try:
            await play(peer)
        except ConnectionClosed:
            return
        except Exception as error:
            failures.append(error)
            await peer.close(4429, "the play failed")  # a close that the edge doesn't try to mend

    async with serve(
        handle, "127.0.0.1", port, subprotocols=[Subprotocol(name) for name in SUBPROTOCOLS], compression=None, ssl=tls
    ) as server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        except Exception as error:
            if failures:
                raise failures[0] from error
            raise
    if failures:
        raise failures[0]


def opened(stream: int, *, head: int = 0, resume: str = "token", window: int = 8) -> Opened:
    return Opened(stream, resume, 1, seed=7, choice=0, epoch=1, head=head, window=window)


def finish(stream: int, length: int) -> Finish:
    return Finish(stream, length, "stop", None, Usage(completion=length))


@dataclass
class Told:
    """A listener that keeps what it hears, and lets a test wait for it."""

    opened_: list[Opened] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    finish: Finish | None = None
    error: Exception | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def opened(self, frame: Opened) -> None:
        self.opened_.append(frame)
        self._changed.set()

    def committed(self, frame: Commit, change: Reconciliation) -> None:
        self.commits.append(frame)
        self._changed.set()

    def widened(self) -> None:
        self._changed.set()

    def finished(self, frame: Finish, left: tuple[int, ...]) -> None:
        self.finish = frame
        self._changed.set()

    def failed(self, error: Exception) -> None:
        self.error = error
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def over(self) -> None:
        await self.until(lambda: self.finish is not None or self.error is not None)


def stream(told: Told, *, committed: tuple[int, ...] = (), seed: int | None = 7) -> Stream:
    request = Open(0, "m", prompt=(1,), sampling=Sampling(seed=seed))
    return Stream(request, DraftingSession(0, epoch=1, ledger=Ledger(committed)), told)
