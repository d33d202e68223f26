"""Frames: any bytes are a frame or a ProtocolError, on either side, in either encoding; a gateway takes any frames."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from edge.protocol import frames
from edge.protocol.errors import ProtocolError
from edge.protocol.padding import Padded, Padding, pad
from tests.app.api.peer import dialled, greeted, opening, reference
from tests.app.serving import MODEL, Running, Steps, scripted, serving, until

TAGS = [
    "hello",
    "open",
    "draft",
    "resume",
    "cancel",
    "ping",
    "welcome",
    "opened",
    "commit",
    "window",
    "finish",
    "error",
    "pong",
    "pad",
    "x",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from((0, 1, 2**31 - 1, 2**31, 2**53, 2**53 + 1, MODEL, "eager", "draft_only", "json_schema")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
ARRAYS = st.tuples(st.sampled_from(TAGS), st.lists(VALUES, max_size=14)).map(lambda parts: [parts[0], *parts[1]])
CODECS = {
    f"{side.__name__}, {subprotocol.rpartition('.')[2]}": side(subprotocol, frame_bytes=1 << 16)
    for side in (frames.edge_codec, frames.cloud_codec)
    for subprotocol in frames.SUBPROTOCOLS
}


def _mutated(data: bytes, cuts: list[tuple[int, int]]) -> bytes:
    broken = bytearray(data)
    for at, byte in cuts:
        if broken:
            broken[at % len(broken)] = byte
    return bytes(broken)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_message_is_a_frame_or_a_fault_of_the_peer(name: str, data: st.DataObject) -> None:
    codec = CODECS[name]
    array = data.draw(ARRAYS)
    with contextlib.suppress(msgspec.EncodeError, ValueError, OverflowError):
        whole = (msgspec.json if codec.text else msgspec.msgpack).encode(array)
        cuts = data.draw(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), max_size=3))
        for message in (
            whole,
            _mutated(whole, cuts),
            whole[: data.draw(st.integers(0, len(whole)))],
            data.draw(st.binary()),
        ):
            _take(codec, message.decode(errors="surrogateescape") if codec.text else message)


def _take(codec: frames.Codec, message: bytes | str) -> None:
    try:
        frame = codec.decode(message)
        frame = codec.unwrap(frame) if isinstance(frame, Padded) else frame
    except ProtocolError:
        return
    if frame is not None:
        other = frames.Codec(codec.subprotocol, type(frame) | frames.Pong | frames.Ping)
        assert msgspec.to_builtins(other.decode(codec.encode(frame))) == pytest.approx(
            msgspec.to_builtins(frame), nan_ok=True
        )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=2000) | st.none(), st.integers(64, 4096))
def test_what_is_padded_comes_out_as_it_went_in_whatever_it_is(message: bytes | None, size: int) -> None:
    sent = pad(message if message else None, Padding(size), text=False, most=1 << 16)
    assert isinstance(sent, bytes)
    assert len(sent) >= size
    with contextlib.suppress(ProtocolError):
        codec = frames.cloud_codec(frame_bytes=1 << 16)
        envelope = codec.decode(sent)
        assert not isinstance(envelope, Padded) or not message or bytes(envelope.frame) == message


FRAMES: st.SearchStrategy[Any] = st.one_of(
    ARRAYS,
    st.tuples(st.just("open"), st.integers(0, 9), st.just(MODEL), st.lists(st.integers(0, 600), max_size=6)).map(list),
    st.tuples(
        st.just("draft"),
        st.integers(0, 9),
        st.integers(0, 4),
        st.integers(0, 20),
        st.lists(st.integers(0, 600), max_size=9),
    ).map(list),
    st.tuples(st.just("cancel"), st.integers(0, 9)).map(list),
    st.tuples(st.just("resume"), st.integers(0, 9), st.text(max_size=9), st.integers(0, 9)).map(list),
    st.tuples(st.just("ping"), st.integers(0, 9)).map(list),
)


async def test_a_gateway_takes_any_frames_in_any_order_and_no_one_else_notices(tmp_path: Path) -> None:
    steps = Steps()
    engine = scripted(length=12, sleep=steps.wait, step_s=1.0, queue=4096)
    options: dict[str, Any] = {"grace_s": 0.01, "tenant_streams": 4096, "socket_errors": 10_000}
    async with serving(tmp_path, engine, steps=steps, **options) as running, greeted(running) as bystander:
        steps.allow()
        await bystander.send(opening(1, max_tokens=12))
        await bystander.expect(frames.Opened)
        steps.run_free()
        loop = asyncio.get_running_loop()

        @given(st.lists(FRAMES, max_size=12))
        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        def examples(sent: list[Any]) -> None:
            asyncio.run_coroutine_threadsafe(_send(running, sent), loop).result(30)

        await asyncio.to_thread(examples)
        assert (await bystander.output(1))[0] == reference(running, 12)
        await until(lambda: len(running.gateway.streams) == 0)
        await until(lambda: engine.load().running == engine.load().waiting == 0)
        assert running.gateway.metrics.sockets._value.get() == 1, "the bystander's"


async def _send(running: Running, sent: list[Any]) -> None:
    async with dialled(running) as peer:
        with contextlib.suppress(ConnectionClosed):
            await peer.send(frames.Hello(frames.VERSION, auth=running.key))
            for array in sent:
                with contextlib.suppress(msgspec.EncodeError, OverflowError, UnicodeEncodeError):
                    await peer.socket.send(msgspec.msgpack.encode(array))
            await peer.send(frames.Ping(77))
            while not isinstance(frame := await peer.frame(), frames.Pong) or frame.nonce != 77:
                assert not isinstance(frame, frames.Error) or frame.code != "internal"
