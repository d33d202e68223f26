"""The WebSocket to a gateway: one socket, many streams, mended when it breaks.

Three tasks share a socket: one reads, one writes, one pings. What they say is decided in `edge.stream`; here is only
when to connect, whom a frame is for, and how long to keep trying:

- What is written, and when, is decided in `edge.outgoing`: nothing is queued here.
- A lost socket is replaced after a jittered, exponentially growing pause, for as long as the gateway keeps its streams
  (`limits.grace_s`); then every stream fails with ConnectionLost. Without streams a lost socket stays lost until one is
  wanted: an idle device costs the gateway nothing.
- A silent socket is a lost one. Pings are the protocol's own and measure the round trip too; any frame is a sign of
  life.
- A device that slept, or whose own address has changed, has a socket that is probably dead and doesn't know: it gets a
  short time to show that it lives. All is timed by clocks that nobody sets, so a clock that jumps changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from edge.address import require_tls, verify_url
from edge.dial import Dial, close_error, dial
from edge.errors import Closed, ConnectionLost, EdgeError, Unreachable, from_frame, is_fatal
from edge.outgoing import Observe, Outgoing
from edge.protocol.errors import (
    FrameTooLarge,
    Idle,
    MalformedFrame,
    ProtocolError,
    TooManyStreams,
    UnknownFrame,
    VersionMismatch,
)
from edge.protocol.frames import (
    MSGPACK,
    VERSION,
    CloudFrame,
    Commit,
    Error,
    Finish,
    Hello,
    Limits,
    Opened,
    Pong,
    Welcome,
    Window,
    edge_codec,
)
from edge.protocol.padding import Padded, Padding
from edge.pulse import Pulse
from edge.roster import Roster
from edge.stream import Phase, Stream
from edge.surroundings import Surroundings

StreamFrame = Opened | Commit | Window | Finish | Error

log = logging.getLogger("paceline.edge.connection")

_AGENT = "paceline-edge"


@dataclass(frozen=True, slots=True)
class Timing:
    """All in seconds."""

    connect_s: float = 10.0
    """One attempt, from the first packet to `welcome`; and how long a stream that never began waits for a gateway."""
    ping_s: float = 5.0
    silent_s: float = 15.0
    """A socket that brought nothing for so long, pongs included, is lost."""
    watch_s: float = 1.0
    """Between looks at whether the device slept or moved."""
    probe_s: float = 2.0
    """What a socket then has to show that it lives."""
    backoff_s: float = 0.1
    """Before the second attempt; it doubles up to `backoff_cap_s`, and a random half of it is left out."""
    backoff_cap_s: float = 5.0
    close_s: float = 1.0


def pauses(timing: Timing, rng: random.Random) -> Iterator[float]:
    """Seconds to wait before each attempt to reconnect. Jitter keeps a gateway's devices from coming back in step."""
    pause = timing.backoff_s
    while True:
        yield pause * (0.5 + rng.random() / 2)
        pause = min(pause * 2, timing.backoff_cap_s)


class Connection:
    """Use as an async context manager. Entering it raises Unreachable, or what the gateway answered to `hello`."""

    welcome: Welcome

    def __init__(
        self,
        url: str,
        *,
        key: str = "",
        ticket: str = "",
        fingerprint: str = "",
        codec: str = MSGPACK,
        agent: str = _AGENT,
        timing: Timing = Timing(),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
        observe: Observe | None = None,
        allow_plain: bool = False,
        surroundings: Surroundings | None = None,
        padding: Padding | None = None,
        dial: Dial = dial,
    ) -> None:
        """`url`: the gateway's base address. `observe` is told every frame that leaves, and its bytes.

        `padding`: sizes and times tell a watcher less, in both directions (edge/protocol/padding.py).

        Raises Insecure if that is without TLS outside this machine, unless `allow_plain`.
        """
        self.url = verify_url(url)
        require_tls(self.url, allow_plain=allow_plain)
        self._surroundings = surroundings or Surroundings(clock)
        self._hello = Hello(VERSION, auth=key, ticket=ticket, fingerprint=fingerprint, agent=agent)
        self._codec = edge_codec(codec)
        self._timing = timing
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()  # noqa: S311 (jitter)
        self._dial = dial
        self._roster = Roster()
        self._pulse = Pulse()
        self._padded = padding is not None
        self._outgoing = Outgoing(
            self._roster, self._pulse, self._codec, clock=clock, sleep=sleep, observe=observe, padding=padding
        )
        self._socket: ClientConnection | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._closed: Exception | None = None

    @property
    def limits(self) -> Limits:
        return self.welcome.limits

    @property
    def rtt_s(self) -> float | None:
        """Round-trip time. None before the first ping's answer."""
        return self._pulse.rtt_s

    @property
    def connected(self) -> bool:
        return self._socket is not None

    @property
    def ended(self) -> bool:
        """Closed, or refused by the gateway for good: it opens no stream any more."""
        return self._closed is not None

    async def __aenter__(self) -> Self:
        self._socket = await self._connect()
        self._supervisor = asyncio.create_task(self._supervise(self._socket))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel the streams and close the socket. Idempotent."""
        if self._closed is None:
            self._closed = Closed("the connection was closed")
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
            self._supervisor = None
        for stream in self._roster.live():
            stream.cancel()
            stream.listener.failed(self._closed)
            self._roster.mark(stream)
        if self._socket is not None:
            await self._say_goodbye(self._socket)
            self._socket = None
        self._roster.clear()

    def open(self, stream: Stream) -> None:
        """Start a stream; its listener hears of everything else.

        Raises TooManyStreams over the gateway's limit, and what ended the connection once it has ended.
        """
        if self._closed is not None:
            raise self._closed
        if len(self._roster) >= self.limits.streams:
            raise TooManyStreams(f"the gateway takes {self.limits.streams} streams on one socket")
        if self._socket is None:
            self._roster.wait(stream)
        else:
            self._roster.place(stream)

    def wake(self, stream: Stream) -> None:
        """The stream may have something to send now, or has ended."""
        self._roster.mark(stream)

    # The life of a socket

    async def _connect(self) -> ClientConnection:
        socket, self.welcome = await self._dial(self.url, self._hello, self._codec, self._timing.connect_s)
        self._outgoing.frame_bytes = self.limits.frame_bytes
        self._pulse.heard = self._clock()
        return socket

    async def _supervise(self, socket: ClientConnection | None) -> None:
        """Serve sockets, one after the other, until the connection is closed or the gateway refuses us for good."""
        try:
            while True:
                if socket is None:
                    await self._roster.wanted.wait()
                    socket = await self._reconnect()
                if socket is not None:
                    self._socket = socket
                    await self._serve(socket)
                self._socket = socket = None
                self._roster.displace()
        except ProtocolError as refusal:
            self._end(refusal)
        except Exception:
            log.exception("connection task failed")
            self._end(EdgeError("the connection failed by a fault of this program; its log has more"))

    async def _reconnect(self) -> ClientConnection | None:
        """A new socket; None when it took too long, and the streams that waited for it have failed."""
        since = self._clock()
        for pause in pauses(self._timing, self._rng):
            try:
                return await self._connect()
            except Unreachable as error:
                resumable = any(stream.resume_token for stream in self._roster.waiting)
                patience = self.limits.grace_s if resumable else self._timing.connect_s
                if self._clock() - since + pause > patience:
                    self._give_up(error, patience)
                    return None
            await self._sleep(pause)
            if not self._roster.waiting:
                return None
        raise AssertionError("pauses never end")

    def _give_up(self, error: Unreachable, patience: float) -> None:
        for stream in self._roster.live():
            if stream.resume_token:
                held = stream.session.head
                text = f"the gateway was gone for over {patience:g} s; {held} output tokens had been committed"
                stream.fail(ConnectionLost(text))
            else:
                stream.fail(error)
        self._roster.clear()

    async def _serve(self, socket: ClientConnection) -> None:
        """Returns when the socket is lost. Raises what the gateway refused us for."""
        for stream in self._roster.waiting:
            self._roster.place(stream)
        tasks = [
            asyncio.create_task(part(socket))
            for part in (self._read, self._outgoing.write, self._ping_along, self._watch)
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done = [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        errors = [task.exception() for task in done if not task.cancelled()]
        if any(error is None for error in errors):  # silent
            socket.transport.abort()
        for error in errors:
            if isinstance(error, ConnectionClosed):
                error = close_error(error)
            if error is not None:
                await socket.close()
                raise error

    async def _read(self, socket: ClientConnection) -> None:
        while True:
            data = await socket.recv()
            self._pulse.heard = self._clock()
            try:
                frame = self._unwrapped(data)
            except (UnknownFrame, FrameTooLarge, MalformedFrame) as error:
                log.warning("frame from the gateway left out: %s", error.code)
                continue
            if frame is None:
                continue
            if isinstance(frame, Pong):
                self._pulse.answered(frame.nonce)
            elif isinstance(frame, Error) and frame.stream is None:
                self._socket_error(frame)
            elif not isinstance(frame, Welcome):
                self._dispatch(frame, len(data))

    def _unwrapped(self, data: bytes | str) -> CloudFrame | None:
        """None: an envelope with nothing in it."""
        found: CloudFrame | Padded = self._codec.decode(data)
        if not isinstance(found, Padded):
            return found
        frame: CloudFrame | None = self._codec.unwrap(found)
        return frame

    def _socket_error(self, frame: Error) -> None:
        error = from_frame(frame)
        if is_fatal(error):
            raise error
        if self._padded and isinstance(error, UnknownFrame):
            raise VersionMismatch("this gateway can't pad its messages: update it, or turn padding off")
        # A socket that rests is taken away; the next stream gets another.
        log.log(logging.DEBUG if isinstance(error, Idle) else logging.WARNING, "the gateway complains: %s", error.code)

    def _dispatch(self, frame: StreamFrame, size: int) -> None:
        stream = None if frame.stream is None else self._roster.get(frame.stream)
        if stream is None:
            return  # of a stream that was cancelled, or is on the socket under another id by now
        try:
            stream.receive(frame, size)
        except ProtocolError as error:  # a gap or a contradiction: this stream can't be trusted any more, others can
            log.warning("the gateway broke the protocol: %s", error.code)
            stream.cancel()
            stream.listener.failed(error)
        if stream.phase is Phase.WAITING:
            self._roster.place_again(stream)
        else:
            self._roster.mark(stream)

    async def _ping_along(self, socket: ClientConnection) -> None:
        """Ping while there are streams; return when the socket has been silent for too long."""
        while True:
            if not self._roster.wanted.is_set():
                await self._roster.wanted.wait()
                self._pulse.heard = self._clock()
            self._ask_for_pong()
            await self._sleep(self._timing.ping_s)
            if self._clock() - self._pulse.heard > self._timing.silent_s:
                log.warning("nothing heard from the gateway: reconnecting")
                return

    def _ask_for_pong(self) -> None:
        self._pulse.ask()
        self._roster.ready.set()

    async def _watch(self, socket: ClientConnection) -> None:
        """Return when the device slept or moved and the socket doesn't answer any more. Idle, nothing is looked at."""
        self._surroundings.settle(socket.transport.get_extra_info("peername"))
        while True:
            if self._roster.wanted.is_set():
                await self._sleep(self._timing.watch_s)
            else:
                await self._roster.wanted.wait()
            if self._surroundings.changed():
                since = self._pulse.heard
                self._ask_for_pong()
                await self._sleep(self._timing.probe_s)
                if self._pulse.heard == since:
                    log.warning("this device slept or moved, and the socket is dead: reconnecting")
                    return

    def _end(self, error: Exception) -> None:
        self._closed = error
        for stream in self._roster.live():
            stream.fail(error)
        self._roster.clear()

    async def _say_goodbye(self, socket: ClientConnection) -> None:
        """Cancels go out before the close, or the gateway would keep the streams for their grace time."""
        try:
            async with asyncio.timeout(self._timing.close_s):
                await self._outgoing.flush(socket)
        except (ConnectionClosed, TimeoutError):
            pass
        await socket.close()
