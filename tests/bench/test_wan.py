"""The proxy delays by what it says, keeps order, loses nothing, and an outage ends every connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import numpy as np

from bench.accuracy import run
from bench.link import Link
from bench.wan import HELD_BYTES, Wan

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def _server(handle: Handler) -> AsyncIterator[int]:
    """A local server; on leaving, all of its connections have ended."""
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        with contextlib.suppress(ConnectionError):
            await handle(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*running)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def test_bytes_come_back_whole_and_not_before_the_round_trip() -> None:
    sent = np.random.default_rng(1).bytes(300_000)
    loop = asyncio.get_running_loop()
    async with _server(_echo) as port, Wan(port, Link(rtt_s=0.05, jitter_s=0.01), seed=3) as wan:
        reader, writer = await asyncio.open_connection("127.0.0.1", wan.port)
        began = loop.time()
        writer.write(sent)
        received = await reader.readexactly(len(sent))
        assert received == sent
        assert loop.time() - began >= 0.05 - 2 * 0.01
        writer.close()
        await writer.wait_closed()


async def test_a_sender_is_stopped_when_too_much_is_on_its_way() -> None:
    async with (
        _server(_echo) as port,
        Wan(port, Link(up_bytes_per_s=HELD_BYTES * 20.0, down_bytes_per_s=HELD_BYTES * 20.0)) as wan,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", wan.port)
        sent = bytes(3 * HELD_BYTES)

        async def send() -> None:
            writer.write(sent)
            await writer.drain()

        _, received = await asyncio.gather(send(), reader.readexactly(len(sent)))
        assert received == sent
        writer.close()
        await writer.wait_closed()


async def _ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the connection was reset or closed, without a byte."""
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_an_outage_resets_connections_and_refuses_new_ones_until_mended() -> None:
    async with _server(_echo) as port, Wan(port, Link()) as wan:
        reader, writer = await asyncio.open_connection("127.0.0.1", wan.port)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        wan.cut()
        assert await _ended(reader, writer)
        assert await _ended(*await asyncio.open_connection("127.0.0.1", wan.port))
        wan.mend()
        reader, writer = await asyncio.open_connection("127.0.0.1", wan.port)
        writer.write(b"b")
        assert await reader.readexactly(1) == b"b"
        writer.close()
        await writer.wait_closed()


async def test_a_closed_client_closes_the_upstream() -> None:
    ended = asyncio.Event()

    async def until_eof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()

    async with _server(until_eof) as port, Wan(port, Link(rtt_s=0.01)) as wan:
        _, writer = await asyncio.open_connection("127.0.0.1", wan.port)
        writer.write(b"x")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(ended.wait(), 10)


async def test_the_proxies_of_a_bench_are_a_process_of_their_own() -> None:
    (row,) = await run(["4"], trips=3)
    assert row["rtt_ms"] == row["set_median_ms"] == 4
    assert row["least_ms"] >= 4  # late it may be, on a busy machine; early never
    assert row["least_ms"] <= row["median_ms"] <= row["p99_ms"]
