"""A TCP proxy that delays what passes through it: a wide-area network on one machine.

How long each chunk is held, link.py decides; what is drawn at random depends on the seed, the number of the connection
and the way alone. `cut` is an outage that connections don't survive: they are reset, new ones refused until `mend`.

`python -m bench.wan PORT LINKS` runs one proxy per link, a JSON array, before a local port, in its own process; it
prints their ports as JSON. Timers matter here: epoll rounds a wait up to the next millisecond, which is 5% of a 20 ms
round trip; select takes microseconds. So that process uses a loop on select.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import msgspec

from bench.link import Delay, Link, Outages, Way

HELD_BYTES = 1 << 22
"""Per direction and connection; past it the sender isn't read, as behind a full TCP window."""


@dataclass(slots=True)
class _Direction:
    """One way through the proxy: a queue of chunks with the time at which each is passed on."""

    delay: Delay
    source: asyncio.Transport
    sink: asyncio.Transport | None = None
    held: deque[tuple[float, bytes]] = field(default_factory=deque)
    held_bytes: int = 0
    timer: asyncio.TimerHandle | None = None
    closing: bool = False

    def take(self, data: bytes, now: float) -> None:
        self.held.append((self.delay.due(now, len(data)), data))
        self.held_bytes += len(data)
        if self.held_bytes > HELD_BYTES:
            self.source.pause_reading()
        self.wake(now)

    def close(self, now: float) -> None:
        """The source sent its last byte; the sink hears of it behind what is still held."""
        self.closing = True
        self.held.append((self.delay.due(now, 0), b""))
        self.wake(now)

    def wake(self, now: float) -> None:
        if self.sink is None or self.timer is not None:
            return
        while self.held and self.held[0][0] <= now:
            self._pass_on(self.held.popleft()[1])
        if self.held:
            self.timer = asyncio.get_running_loop().call_at(self.held[0][0], self._due)

    def _due(self) -> None:
        self.timer = None
        self.wake(asyncio.get_running_loop().time())

    def _pass_on(self, data: bytes) -> None:
        assert self.sink is not None  # noqa: S101 - wake() asked
        if self.sink.is_closing():
            return
        if not data:
            self.sink.close()
            return
        self.sink.write(data)
        self.held_bytes -= len(data)
        if self.held_bytes <= HELD_BYTES and not self.closing and not self.source.is_closing():
            self.source.resume_reading()

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.held.clear()


class _End(asyncio.Protocol):
    """One of the two sockets of a connection. The upstream socket is opened when the client's arrives."""

    def __init__(self, made: Callable[[_End], None], lost: Callable[[_End], None]) -> None:
        self._made = made
        self._lost = lost
        self.transport: asyncio.Transport | None = None
        self.direction: _Direction | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio's promise for streams
        self.transport = transport
        self._made(self)

    def data_received(self, data: bytes) -> None:
        if self.direction is not None:
            self.direction.take(data, asyncio.get_running_loop().time())

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)
        if self.direction is not None and not self.direction.closing:
            self.direction.close(asyncio.get_running_loop().time())


class Wan:
    """A listening proxy before `host:port`. Use as an async context manager; `port` is where clients connect."""

    def __init__(self, upstream_port: int, link: Link, *, host: str = "127.0.0.1", seed: int = 0) -> None:
        self._host = host
        self._upstream_port = upstream_port
        self._link = link
        self._seed = seed
        self._connections = 0
        self._outages: Outages | None = None
        self._ends: set[_End] = set()
        self._directions: list[_Direction] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._all_lost = asyncio.Event()
        self._all_lost.set()
        self._refusing = False
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Wan:
        loop = asyncio.get_running_loop()
        self._outages = Outages(self._link, self._random("outages"), loop.time())
        self._server = await loop.create_server(lambda: _End(self._accepted, self._lost), self._host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
        await self._all_lost.wait()

    def cut(self) -> None:
        """An outage begins: every connection is reset, what is on its way is lost, new ones are refused."""
        self._refusing = True
        for direction in self._directions:
            direction.stop()
        self._directions.clear()
        for end in self._ends:
            if end.transport is not None:
                end.transport.abort()

    def mend(self) -> None:
        """The outage ends."""
        self._refusing = False

    def _made(self, end: _End) -> None:
        self._ends.add(end)
        self._all_lost.clear()

    def _lost(self, end: _End) -> None:
        self._ends.discard(end)
        if not self._ends:
            self._all_lost.set()

    def _accepted(self, client: _End) -> None:
        assert client.transport is not None  # noqa: S101 - just made
        if self._refusing:
            client.transport.abort()
            return
        self._made(client)
        self._connections += 1
        number = self._connections
        client.direction = self._direction(client.transport, number, "up")
        task = asyncio.get_running_loop().create_task(self._open_upstream(client, client.direction, number))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _random(self, what: str) -> Random:
        return Random(f"{self._seed} {what}")  # noqa: S311 - jitter, not a secret

    def _direction(self, source: asyncio.Transport, number: int, way: Way) -> _Direction:
        assert self._outages is not None  # noqa: S101 - entered
        delay = Delay(self._link, way, self._random(f"{number} {way}"), self._outages.over)
        direction = _Direction(delay, source)
        self._directions = [d for d in self._directions if not (d.closing and not d.held)]
        self._directions.append(direction)
        return direction

    async def _open_upstream(self, client: _End, upwards: _Direction, number: int) -> None:
        loop = asyncio.get_running_loop()
        assert client.transport is not None  # noqa: S101 - accepted
        upstream = _End(self._made, self._lost)
        try:
            await loop.create_connection(lambda: upstream, self._host, self._upstream_port)
        except OSError:
            client.transport.abort()
            return
        assert upstream.transport is not None  # noqa: S101 - connected
        upstream.direction = self._direction(upstream.transport, number, "down")
        upstream.direction.sink = client.transport
        upwards.sink = upstream.transport
        upwards.wake(loop.time())


def microsecond_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are not rounded to milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


async def serve(upstream_port: int, links: list[Link], ready: Callable[[list[int]], Awaitable[None]]) -> None:
    """Run one proxy per link until `ready`, called with their ports, returns."""
    async with asyncio.TaskGroup() as group:
        proxies = [Wan(upstream_port, link) for link in links]
        for proxy in proxies:
            await proxy.__aenter__()
        try:
            await ready([proxy.port for proxy in proxies])
        finally:
            for proxy in proxies:
                group.create_task(proxy.__aexit__())


async def until_stdin_closes() -> None:
    """The parent holds our standard input; when it ends, however it ends, so do we."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    transport.close()


async def _announce(ports: list[int]) -> None:
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await until_stdin_closes()


def main(arguments: list[str]) -> None:
    links = msgspec.json.decode(arguments[1], type=list[Link])
    with asyncio.Runner(loop_factory=microsecond_loop) as runner:
        runner.run(serve(int(arguments[0]), links, _announce))


if __name__ == "__main__":
    main(sys.argv[1:])
