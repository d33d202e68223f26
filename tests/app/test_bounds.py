"""Hostile bytes before and below the frames: slow, endless, broken and half-closed connections. No one else notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from app.bounds import MOST_FRAGMENTS
from edge.protocol import frames
from tests.app.api.peer import greeted, opening, reference
from tests.app.serving import Running, Steps, scripted, serving

HANDSHAKE = (
    "GET /v1/verify HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {frames.JSON}\r\n\r\n"
).encode()


@contextlib.asynccontextmanager
async def beset(data_dir: Path, **options: object) -> AsyncIterator[Running]:
    """A gateway on which another socket's stream is under way, and comes to its right end."""
    steps = Steps()
    async with (
        serving(data_dir, scripted(sleep=steps.wait, step_s=1.0), steps=steps, **options) as running,
        greeted(running) as bystander,
    ):
        await bystander.send(opening(1))
        await bystander.expect(frames.Opened)
        yield running
        steps.run_free()
        assert (await bystander.output(1))[0] == reference(running)


@contextlib.asynccontextmanager
async def connection(running: Running) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(urlsplit(running.url).hostname, urlsplit(running.url).port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def upgraded(running: Running) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with connection(running) as (reader, writer):
        writer.write(HANDSHAKE)
        assert b"101" in await reader.readuntil(b"\r\n\r\n")
        yield reader, writer


def packed(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


async def ending(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the gateway closes."""
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionResetError):
            return await reader.read()
    return b""


@pytest.mark.parametrize("head", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", HANDSHAKE[:-2]])
async def test_the_head_of_a_request_has_its_time(tmp_path: Path, head: bytes) -> None:
    async with beset(tmp_path, hello_s=0.2) as running, connection(running) as (reader, writer):
        writer.write(head)
        assert await ending(reader) == b""


async def test_drops_of_a_head_do_not_buy_more_time(tmp_path: Path) -> None:
    async with beset(tmp_path, hello_s=0.3) as running, connection(running) as (reader, writer):

        async def drip() -> None:
            while True:
                writer.write(b"G")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert b"200" not in await ending(reader)
        dripping.cancel()


async def test_a_second_request_on_a_connection_has_no_more(tmp_path: Path) -> None:
    async with beset(tmp_path, hello_s=0.2) as running, connection(running) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b'{"status":"ok"}')
        writer.write(b"GET /heal")
        assert await ending(reader) == b""


async def test_a_body_has_its_time(tmp_path: Path) -> None:
    async with beset(tmp_path, body_s=0.2) as running, connection(running) as (reader, writer):
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {running.key}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode())
        assert b"408" in await reader.readuntil(b"\r\n")


async def test_a_request_that_is_whole_has_all_the_time_that_its_answer_takes(tmp_path: Path) -> None:
    steps = Steps()
    engine = scripted(sleep=steps.wait, step_s=1.0)
    async with (
        serving(tmp_path, engine, steps=steps, body_s=0.05, hello_s=0.2) as running,
        connection(running) as (reader, writer),
    ):
        body = b'{"model":"scripted","max_tokens":4,"messages":[{"role":"user","content":"x"}]}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {running.key}\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + kind.encode() + body)
        await asyncio.sleep(0.4)
        steps.run_free()
        assert b"200" in await reader.readuntil(b"\r\n")


async def test_a_socket_is_silent_until_it_says_hello_and_not_for_longer(tmp_path: Path) -> None:
    async with beset(tmp_path, hello_s=0.2) as running, upgraded(running) as (reader, writer):
        hello = packed(Opcode.TEXT, b'["hello",1,"x"]')
        for byte in hello[:-1]:
            writer.write(bytes([byte]))
        async with asyncio.timeout(10):
            assert await reader.readuntil(b"hello_timeout")


async def test_a_message_in_fragments_of_nothing_is_cut_off(tmp_path: Path) -> None:
    async with beset(tmp_path) as running, upgraded(running) as (reader, writer):
        writer.write(packed(Opcode.TEXT, b"", fin=False))
        writer.write(packed(Opcode.CONT, b"", fin=False) * (MOST_FRAGMENTS + 1))
        assert (1009).to_bytes(2, "big") in await ending(reader)


async def test_a_hello_in_single_bytes_is_a_hello(tmp_path: Path) -> None:
    async with beset(tmp_path) as running, upgraded(running) as (reader, writer):
        hello = f'["hello",1,"{running.key}"]'.encode()
        parts = [hello[i : i + 1] for i in range(len(hello))]
        writer.write(packed(Opcode.TEXT, b"", fin=False))
        for part in parts:
            writer.write(packed(Opcode.CONT, part, fin=False) + packed(Opcode.PING, b"between"))
        writer.write(packed(Opcode.CONT, b""))
        async with asyncio.timeout(10):
            assert await reader.readuntil(b"welcome")


@pytest.mark.parametrize(
    "data",
    [
        [packed(Opcode.TEXT, b"\xff")],
        [packed(Opcode.TEXT, b"\xed\xa0\x80")],  # a lone surrogate
        [packed(Opcode.TEXT, "é".encode()[:1], fin=False), packed(Opcode.CONT, b"x")],
        [packed(Opcode.TEXT, b"\xf0\x9f", fin=False), packed(Opcode.CONT, b"\x98")],
    ],
)
async def test_text_that_is_not_utf8_closes_the_socket_and_writes_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: list[bytes]
) -> None:
    async with beset(tmp_path) as running, upgraded(running) as (reader, writer):
        writer.write(b"".join(data))
        assert (1007).to_bytes(2, "big") in await ending(reader)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_character_in_two_fragments_is_one(tmp_path: Path) -> None:
    async with beset(tmp_path) as running, upgraded(running) as (reader, writer):
        text = f'["hello",1,"{running.key}","","","é"]'.encode()
        at = text.index("é".encode()) + 1
        writer.write(packed(Opcode.TEXT, text[:at], fin=False) + packed(Opcode.CONT, text[at:]))
        async with asyncio.timeout(10):
            assert await reader.readuntil(b"welcome")


@pytest.mark.parametrize(
    ("data", "close"),
    [
        (Frame(Opcode.TEXT, b"x").serialize(mask=False), 1002),  # a client masks
        (packed(Opcode.CONT, b"x"), 1002),
        (packed(Opcode.TEXT, b"x", fin=False) + packed(Opcode.TEXT, b"y"), 1002),
        (b"\x81\xff" + (1 << 62).to_bytes(8, "big") + b"\0\0\0\0", 1009),
        (b"\x81\xff" + b"\xff" * 8 + b"\0\0\0\0", 1009),
        (b"\x83\x80\0\0\0\0", 1002),  # an opcode that isn't
        (b"\xf1\x80\0\0\0\0", 1002),  # reserved bits
        (b"\x09\x80\0\0\0\0", 1002),  # half a ping
        (b"\x89\xfe\x00\x7e\0\0\0\0" + b"x" * 126, 1002),  # a ping that is too long
        (packed(Opcode.CLOSE, b"\x03"), 1002),
        (packed(Opcode.CLOSE, (999).to_bytes(2, "big")), 1002),
    ],
)
async def test_frames_that_break_rfc_6455_close_the_socket(tmp_path: Path, data: bytes, close: int) -> None:
    async with beset(tmp_path) as running, upgraded(running) as (reader, writer):
        writer.write(data)
        assert close.to_bytes(2, "big") in await ending(reader)


async def test_pings_of_one_who_does_not_read_are_not_kept(tmp_path: Path) -> None:
    async with beset(tmp_path) as running, upgraded(running) as (_, writer):
        server = next(iter(running.gateway.streams)).holder
        assert server is not None
        ping = packed(Opcode.PING, b"x" * 125) * 500
        before = resident()
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(5):
                for _ in range(600):  # 38 MB of pings: 38 MB of pongs
                    writer.write(ping)
                    await writer.drain()
        assert resident() - before < 16 << 20


async def test_a_half_closed_socket_is_a_closed_one(tmp_path: Path) -> None:
    async with beset(tmp_path, grace_s=0.05) as running:
        async with upgraded(running) as (reader, writer):
            writer.write(packed(Opcode.TEXT, f'["hello",1,"{running.key}"]'.encode()))
            await reader.readuntil(b"welcome")
            writer.write(packed(Opcode.TEXT, b'["open",5,"scripted",[104,101]]'))
            await reader.readuntil(b"opened")
            assert len(running.gateway.streams) == 2
            writer.write_eof()
            await ending(reader)
        async with asyncio.timeout(10):
            while len(running.gateway.streams) > 1:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0.01)


async def test_a_socket_that_is_cut_in_a_message_leaves_nothing(tmp_path: Path) -> None:
    async with beset(tmp_path) as running:
        for _ in range(20):
            async with upgraded(running) as (_, writer):
                writer.write(packed(Opcode.TEXT, b"x" * 1000, fin=False))
                await writer.drain()
        async with asyncio.timeout(10):
            while running.gateway.metrics.sockets._value.get() > 1:  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0.01)


def resident() -> int:
    """Bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


MUTATIONS = st.lists(
    st.one_of(
        st.binary(max_size=64),
        st.builds(
            packed, st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.PING, Opcode.CONT]), st.binary(max_size=100)
        ),
        st.builds(packed, st.just(Opcode.TEXT), st.text(max_size=50).map(lambda text: f'["open",{text}]'.encode())),
    ),
    max_size=6,
)


async def test_any_bytes_at_all_are_answered_or_closed_on(tmp_path: Path) -> None:
    async with beset(tmp_path, hello_s=0.5) as running:
        loop = asyncio.get_running_loop()

        async def send(pieces: list[bytes]) -> None:
            async with upgraded(running) as (reader, writer):
                writer.write(b"".join(pieces))
                writer.write_eof()
                await ending(reader)

        @given(MUTATIONS)
        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        def examples(pieces: list[bytes]) -> None:
            asyncio.run_coroutine_threadsafe(send(pieces), loop).result(20)

        await asyncio.to_thread(examples)
        assert running.gateway.metrics.sockets._value.get() >= 1
