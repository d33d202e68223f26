"""A padded socket, seen by who watches it: the same answers, in messages that say nothing by size and time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from starlette.websockets import WebSocketDisconnect

from app.api.paced import PacedSender
from edge.connection import Connection
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.events import Committed
from edge.protocol import frames
from edge.protocol.errors import FrameTooLarge
from edge.protocol.padding import Padded, Padding, pad
from edge.runtime import Generate, Runtime
from tests.app.api.peer import PROMPT, greeted, opening, reference
from tests.app.serving import MODEL, Running, scripted, serving

PADDING = Padding(256, 20)


@pytest.mark.parametrize("subprotocol", frames.SUBPROTOCOLS)
async def test_the_gateway_pads_as_it_is_padded(running: Running, subprotocol: str) -> None:
    async with greeted(running, subprotocol) as peer:
        sent = peer.codec.encode(opening(1))
        await peer.socket.send(pad(sent, PADDING, text=peer.codec.text, most=frames.EDGE_FRAME_BYTES))
        tokens: list[int] = []
        sizes, times = set(), []
        async with asyncio.timeout(20):
            while True:
                data = await peer.socket.recv()
                sizes.add(len(data))
                envelope = peer.codec.decode(data)
                assert isinstance(envelope, Padded)
                frame = peer.codec.unwrap(envelope)
                if isinstance(frame, frames.Commit):
                    tokens += frame.tokens
                if isinstance(frame, frames.Finish):
                    break
            for _ in range(5):  # it goes on behind the end
                times.append(time.monotonic())
                assert peer.codec.unwrap(peer.codec.decode(await peer.socket.recv())) is None
        assert tokens == reference(running)
        assert len(sizes - {256}) <= 1, "finish, with its usage, may be longer"
        assert times[-1] - times[0] > 0.018 * (len(times) - 1), "one a tick"


async def test_the_device_pads_and_its_answers_are_the_same(running: Running) -> None:
    drafter = ScriptedDrafter(running.script, right_with(0.7))
    connection = Connection(running.url, key=running.key, fingerprint=drafter.fingerprint, padding=PADDING)
    async with connection, Runtime(connection, drafter) as runtime:
        for _ in range(2):
            request = Generate(model=MODEL, prompt=PROMPT, sampling=frames.Sampling(temperature=0), max_tokens=30)
            events = [event async for event in runtime.generate(request)]
            tokens = [token.id for event in events if isinstance(event, Committed) for token in event.tokens]
            assert tokens == reference(running)


@pytest.mark.parametrize("subprotocol", frames.SUBPROTOCOLS)
async def test_a_prompt_that_just_fits_is_taken_padded_and_one_that_does_not_is_told(
    tmp_path: Path, subprotocol: str
) -> None:
    async with serving(tmp_path, scripted(context=1 << 14), frame_bytes=5000) as running:
        connection = Connection(running.url, key=running.key, codec=subprotocol, padding=PADDING)
        async with connection, Runtime(connection, None, vocabulary=running.script.vocabulary) as runtime:
            fits = [
                event async for event in runtime.generate(question(4700 if subprotocol == frames.MSGPACK else 2300))
            ]
            assert sum(len(event.tokens) for event in fits if isinstance(event, Committed)) == 5
            with pytest.raises(FrameTooLarge, match="the gateway takes 5000"):
                async for _ in runtime.generate(question(5100)):
                    pass


def question(tokens: int) -> Generate:
    """With a prompt of so many tokens: as many bytes in MessagePack, twice as many in JSON."""
    return Generate(model=MODEL, prompt=(5,) * tokens, sampling=frames.Sampling(temperature=0), max_tokens=5)


async def test_a_broken_envelope_is_the_peers_fault_alone(running: Running) -> None:
    async with greeted(running, frames.JSON) as peer:
        await peer.socket.send('["pad",1,1,null]')
        assert (await peer.expect(frames.Error)).code == "bad_frame"
        await peer.send(opening(1))
        assert (await peer.output(1))[0] == reference(running)


async def test_who_sends_on_a_padded_socket_that_was_lost_is_told() -> None:
    """Found by the simulation: a pong to a socket that had just been lost was waited for, for ever."""

    async def transmit(message: bytes | str) -> None:
        raise WebSocketDisconnect(1006)

    sender = PacedSender(PADDING, transmit, lambda: True, text=False)
    running = asyncio.create_task(sender.run())
    with pytest.raises(WebSocketDisconnect):
        await sender.send(b"\x92\xa4pong\x01")
    with pytest.raises(WebSocketDisconnect):
        await running
    with pytest.raises(WebSocketDisconnect):
        await asyncio.wait_for(sender.send(b"\x92\xa4pong\x02"), 5)
