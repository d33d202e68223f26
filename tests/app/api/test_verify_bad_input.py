"""What a peer can do wrong, each with its documented answer. Meanwhile another stream of the same socket and one of
another socket go on to their right ends, and in the end nothing is left in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from app.engine.scripted import ScriptedEngine
from edge.protocol import frames
from tests.app.api.peer import Peer, dialled, greeted, opening, reference
from tests.app.serving import MODEL, Running, Steps, scripted, serving, until

FRAME_BYTES = 4096
LONG = 60


def raw(*fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


@dataclass(frozen=True, slots=True)
class Scene:
    running: Running
    engine: ScriptedEngine
    steps: Steps


@contextlib.asynccontextmanager
async def scene(data_dir: Path, **settings: Any) -> AsyncIterator[Scene]:
    steps = Steps()
    engine = scripted(sleep=steps.wait, step_s=1.0)
    options = {"frame_bytes": FRAME_BYTES, "grace_s": 0.05} | settings
    async with serving(data_dir, engine, steps=steps, **options) as running:
        yield Scene(running, engine, steps)


@contextlib.asynccontextmanager
async def under_way(scene: Scene) -> AsyncIterator[Peer]:
    """A socket with one stream (id 1) under way, beside another socket with one, while the engine waits.

    Letting go checks both streams and that all is gone. If the socket was closed, its stream ends with its grace time.
    """
    running, engine, steps = scene.running, scene.engine, scene.steps
    steps.hold()
    async with greeted(running) as peer, greeted(running) as bystander:
        for each in (peer, bystander):
            await each.send(opening(1, max_tokens=LONG))
            await each.expect(frames.Opened)
        yield peer
        steps.run_free()
        with contextlib.suppress(ConnectionClosed):
            assert (await peer.output(1))[0] == reference(running, LONG)
        assert (await bystander.output(1))[0] == reference(running, LONG)
    gateway = running.gateway
    await until(lambda: len(gateway.streams) == 0 and engine.load().running == engine.load().waiting == 0)
    await until(lambda: gateway.metrics.sockets._value.get() == 0)
    assert not engine._live
    assert not gateway.streams._of_tenant


@contextlib.asynccontextmanager
async def beset(data_dir: Path, **settings: Any) -> AsyncIterator[tuple[Running, Peer]]:
    """`under_way`, on a gateway of its own with these settings."""
    async with scene(data_dir, **settings) as made, under_way(made) as peer:
        yield made.running, peer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with scene(tmp_path_factory.mktemp("gateway")) as made:
        yield made


BAD_FRAMES: dict[str, tuple[bytes, int | None, str, bool]] = {
    "unknown frame": (raw("frobnicate", 1), None, "unknown_frame", False),
    "unknown frame without a stream": (raw("frobnicate"), None, "unknown_frame", False),
    "not a frame": (b"\xc1\xff\x00", None, "bad_frame", False),
    "an empty message": (b"", None, "bad_frame", False),
    "an empty array": (raw(), None, "bad_frame", False),
    "a map": (msgspec.msgpack.encode({"open": 1}), None, "bad_frame", False),
    "deep nesting": (b"\x91" * 3000, None, "bad_frame", False),
    "oversized": (b"\x00" * (FRAME_BYTES + 1), None, "frame_too_large", False),
    "a cloud's frame": (raw("finish", 1, 5, "stop", None, {}), None, "unknown_frame", False),
    "hello again": (raw("hello", 1, "x"), None, "bad_frame", False),
    "draft for an unknown stream": (raw("draft", 99, 0, 0, [1]), 99, "unknown_stream", True),
    "cancel of an unknown stream": (raw("cancel", 99), 99, "unknown_stream", True),
    "draft at a negative position": (raw("draft", 1, 0, -1, [1]), 1, "bad_frame", False),
    "draft in a negative epoch": (raw("draft", 1, -1, 0, [1]), 1, "bad_frame", False),
    "draft past 2^53": (raw("draft", 1, 2**60, 0, [1]), 1, "bad_frame", False),
    "draft of a negative token": (raw("draft", 1, 0, 0, [-5]), 1, "bad_frame", False),
    "draft of text": (raw("draft", 1, 0, 0, ["a"]), 1, "bad_frame", False),
    "draft outside the vocabulary": (raw("draft", 1, 0, 0, [2**31 - 1]), 1, "draft_refused", False),
    "draft that is too long": (raw("draft", 1, 0, 0, [1] * 65), 1, "draft_too_long", False),
    "draft with a hole": (raw("draft", 1, 0, 5000, [1]), 1, "draft_refused", False),
    "stream id used twice": (raw("open", 1, MODEL, [1]), 1, "stream_reused", False),
    "unknown model": (raw("open", 2, "gpt-9", [1]), 2, "unknown_model", True),
    "no prompt": (raw("open", 2, MODEL), 2, "invalid_request", True),
    "prompt and messages": (raw("open", 2, MODEL, [1], [{"role": "user", "content": "x"}]), 2, "invalid_request", True),
    "unknown role": (raw("open", 2, MODEL, [], [{"role": "x", "content": "x"}]), 2, "invalid_request", True),
    "prompt outside the vocabulary": (raw("open", 2, MODEL, [512]), 2, "invalid_request", True),
    "prompt longer than the context": (raw("open", 2, MODEL, [1] * 2048), 2, "invalid_request", True),
    "committed without a seed": (raw("open", 2, MODEL, [1], [], [1]), 2, "invalid_request", True),
    "not a number": (raw("open", 2, MODEL, [1], [], [], {"temperature": float("nan")}), 2, "", False),
    "endless bias": (raw("open", 2, MODEL, [1], [], [], {"bias": [[1, float("inf")]]}), 2, "", False),
    "draft_only with a prompt": (
        raw("open", 2, MODEL, [1], [], [], {}, None, 0, [], None, "draft_only"), 2, "invalid_request", True,
    ),
    "a resume token that was never issued": (raw("resume", 2, "x.y", 0), 2, "unknown_resume", True),
}  # fmt: skip


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", BAD_FRAMES)
async def test_a_bad_frame_is_answered_and_the_socket_goes_on(shared: Scene, name: str) -> None:
    data, stream, code, final = BAD_FRAMES[name]
    async with under_way(shared) as peer:
        await peer.socket.send(data)
        if code == "draft_refused":
            shared.steps.run_free()  # the engine finds it
        error = await peer.expect(frames.Error)
        if not code:  # either decoder or admission may be the one to say no
            assert error.code in ("bad_frame", "invalid_request")
        else:
            assert (error.stream, error.code, error.final) == (stream, code, final)
        if code == "draft_refused":
            assert error.epoch is not None
            assert error.epoch >= 1
        assert error.message


async def test_a_draft_of_a_million_tokens_is_dropped_unread(tmp_path: Path) -> None:
    async with beset(tmp_path, frame_bytes=1 << 20) as (_, peer):
        await peer.send(frames.Draft(1, 0, 0, (1,) * 1_000_000), frames.Draft(1, 0, 0, (300,) * 1_000_000))
        assert [(await peer.expect(frames.Error)).code for _ in range(2)] == ["draft_too_long", "frame_too_large"]


async def test_a_message_above_the_hard_limit_closes_with_1009(tmp_path: Path) -> None:
    async with beset(tmp_path) as (_, peer):
        await peer.socket.send(b"\x00" * (4 * FRAME_BYTES + 1))
        assert (await peer.closed())[1] == 1009


async def test_text_that_is_not_utf8_closes_with_1007(running: Running) -> None:
    async with greeted(running, frames.JSON) as peer, greeted(running) as bystander:
        await peer.socket.send(b'["ping",1,"\xff"]', text=True)
        assert (await peer.closed())[1] == 1007
        await bystander.send(frames.Ping(1))
        await bystander.expect(frames.Pong)


async def test_bytes_that_are_not_utf8_in_a_string_are_a_bad_frame(tmp_path: Path) -> None:
    async with beset(tmp_path) as (_, peer):
        await peer.socket.send(b"\x93\xa6resume\x02\xa2\xff\xfe")
        assert (await peer.expect(frames.Error)).code == "bad_frame"


async def test_a_message_of_the_other_subprotocols_kind_is_a_bad_frame(tmp_path: Path) -> None:
    async with beset(tmp_path) as (_, peer):
        await peer.socket.send('["ping",1]')
        assert (await peer.expect(frames.Error)).code == "bad_frame"


GREETINGS: dict[str, tuple[bytes, int, str]] = {
    "wrong version": (raw("hello", 2, "sk-pl-x"), 4400, "version_mismatch"),
    "a frame before hello": (raw("ping", 1), 4400, "hello_expected"),
    "an unknown frame before hello": (raw("frobnicate", 1), 4400, "hello_expected"),
    "rubbish": (b"\x00", 4400, "hello_expected"),
    "bad key": (raw("hello", 1, "sk-pl-" + "0" * 64), 4401, "invalid_api_key"),
    "not even a key": (raw("hello", 1, "x" * 3000), 4401, "invalid_api_key"),
    "no key": (raw("hello", 1), 4401, "invalid_api_key"),
    "key and ticket": (raw("hello", 1, "sk-pl-x", "tk-x"), 4401, "invalid_api_key"),
    "bad ticket": (raw("hello", 1, "", "tk-x"), 4401, "invalid_api_key"),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", GREETINGS)
async def test_a_bad_greeting_closes_the_socket(shared: Scene, name: str) -> None:
    data, close, code = GREETINGS[name]
    async with under_way(shared), dialled(shared.running) as peer:
        await peer.socket.send(data)
        seen, closed = await peer.closed()
        assert closed == close
        (error,) = seen
        assert (error.code, error.stream) == (code, None)


async def test_a_socket_that_never_says_hello_is_closed(tmp_path: Path) -> None:
    async with beset(tmp_path, hello_s=0.05) as (running, _), dialled(running) as silent:
        seen, code = await silent.closed()
        assert (code, [error.code for error in seen]) == (4408, ["hello_timeout"])


async def test_an_idle_socket_is_closed_but_not_one_with_a_stream(tmp_path: Path) -> None:
    async with beset(tmp_path, idle_s=0.05) as (running, peer), dialled(running) as idle:
        await idle.send(frames.Hello(frames.VERSION, auth=running.key))
        seen, code = await idle.closed()
        assert (code, seen[-1].code) == (4408, "idle_timeout")
        await peer.send(frames.Ping(1))
        await peer.expect(frames.Pong)


async def test_a_drafter_of_another_vocabulary_is_refused_at_open(tmp_path: Path) -> None:
    async with beset(tmp_path) as (running, _), greeted(running, fingerprint="ab" * 32) as peer:
        await peer.send(opening(1))
        error = await peer.expect(frames.Error)
        assert (error.stream, error.code, error.final) == (1, "vocabulary_mismatch", True)


async def test_too_many_streams_on_a_socket(tmp_path: Path) -> None:
    async with beset(tmp_path, socket_streams=2) as (_, peer):
        await peer.send(opening(2, max_tokens=LONG), opening(3))
        error = await peer.expect(frames.Error)
        assert (error.stream, error.code) == (3, "too_many_streams")


async def test_too_many_streams_of_a_tenant(tmp_path: Path) -> None:
    async with beset(tmp_path, tenant_streams=3) as (running, peer):
        await peer.send(opening(2, max_tokens=LONG), opening(3))
        assert (await peer.expect(frames.Error)).code == "too_many_streams"
        other = await running.gateway.tenants.create_key("other", "")
        async with greeted(running, key=other) as neighbour:
            await neighbour.send(opening(1))
            await neighbour.expect(frames.Opened)


async def test_a_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    steps = Steps()
    engine = scripted(sleep=steps.wait, step_s=1.0, streams=1, queue=1)
    async with serving(tmp_path, engine, steps=steps) as running, greeted(running) as peer:
        steps.allow()
        await peer.send(opening(1))
        await peer.expect(frames.Commit)
        await peer.send(opening(2), opening(3))
        error = await peer.expect(frames.Error)
        assert (error.stream, error.code, error.final) == (3, "overloaded", True)
        assert error.retry_after_s
        steps.run_free()
        assert (await peer.output(2))[0] == reference(running)


async def test_a_peer_that_errs_without_end_is_cut_off(tmp_path: Path) -> None:
    async with beset(tmp_path, socket_errors=5) as (_, peer):
        for _ in range(20):
            await peer.socket.send(raw("frobnicate"))
        seen, code = await peer.closed()
        assert code == 4429
        assert seen[-1].code == "too_many_errors"
        assert len(seen) < 12
