"""Envelopes have the size they are told, in both encodings; messages leave at ticks and at no other time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol import frames
from edge.protocol.errors import FrameTooLarge, MalformedFrame
from edge.protocol.frames import Codec, cloud_codec, edge_codec
from edge.protocol.padding import ENVELOPE_BYTES, RUN_TICKS, Cadence, Padded, Padding, pad

MOST = frames.EDGE_FRAME_BYTES

drafts = st.builds(
    frames.Draft,
    st.integers(0, 2**53),
    st.integers(0, 300),
    st.integers(0, 2**20),
    st.lists(st.integers(0, 2**31 - 1), max_size=200).map(tuple),
)


def opened(codec: Codec, data: bytes | str) -> object:
    envelope = codec.decode(data)
    assert isinstance(envelope, Padded)
    return codec.unwrap(envelope)


@pytest.mark.parametrize("subprotocol", frames.SUBPROTOCOLS)
@given(frame=drafts, size=st.integers(64, 4096), tick_ms=st.integers(10, 1000))
def test_a_frame_comes_out_as_it_went_in_and_shows_no_length(
    subprotocol: str, frame: frames.Draft, size: int, tick_ms: int
) -> None:
    sender, receiver = edge_codec(subprotocol), cloud_codec(subprotocol)
    inner = sender.encode(frame)
    data = pad(inner, Padding(size, tick_ms), text=sender.text, most=MOST)
    allowed = [size << n for n in range(12)]
    assert len(data) in allowed
    assert len(data) == size or len(data) // 2 < len(inner) + 40, "no larger than it must be"
    assert opened(receiver, data) == frame
    envelope = receiver.decode(data)
    assert (envelope.size, envelope.tick_ms) == (size, tick_ms)


@pytest.mark.parametrize("subprotocol", frames.SUBPROTOCOLS)
def test_an_empty_envelope_looks_like_a_full_one(subprotocol: str) -> None:
    sender, receiver = edge_codec(subprotocol), cloud_codec(subprotocol)
    empty = pad(None, Padding(), text=sender.text, most=MOST)
    full = pad(sender.encode(frames.Draft(1, 0, 0, (5,) * 16)), Padding(), text=sender.text, most=MOST)
    assert len(empty) == len(full) == 512
    assert opened(receiver, empty) is None


@pytest.mark.parametrize("subprotocol", frames.SUBPROTOCOLS)
@given(below=st.integers(-3, 1500), size=st.integers(64, 4096))
def test_what_is_taken_unpadded_is_taken_padded(subprotocol: str, below: int, size: int) -> None:
    limit = 3000  # no doubling of most sizes
    sender, receiver = edge_codec(subprotocol), cloud_codec(subprotocol, frame_bytes=limit)
    bare = len(sender.encode(frames.Open(1, "m" * 300)))
    frame = frames.Open(1, "m" * (300 + limit - below - bare))
    inner = sender.encode(frame)
    assert len(inner) == limit - below
    data = pad(inner, Padding(size), text=sender.text, most=limit)
    if below < 0:
        with pytest.raises(FrameTooLarge):
            receiver.decode(inner)
        with pytest.raises(FrameTooLarge):
            opened(receiver, data)
        return
    assert receiver.decode(inner) == frame
    assert opened(receiver, data) == frame
    assert len(data) <= limit + ENVELOPE_BYTES
    assert len(data) == limit + ENVELOPE_BYTES or len(data) in [size << n for n in range(8)]


@pytest.mark.parametrize("subprotocol", frames.SUBPROTOCOLS)
def test_what_is_no_frame_inside_is_no_frame(subprotocol: str) -> None:
    sender, receiver = edge_codec(subprotocol), cloud_codec(subprotocol)
    twice = pad(pad(None, Padding(), text=sender.text, most=MOST), Padding(), text=sender.text, most=MOST)
    with pytest.raises(MalformedFrame):
        opened(receiver, twice)
    with pytest.raises(MalformedFrame):
        opened(receiver, pad("[1]" if sender.text else b"\x91\x01", Padding(), text=sender.text, most=MOST))
    for broken in ('["pad",8,50,null]', '["pad",512,1,null]', '["pad",512,50]'):
        with pytest.raises(MalformedFrame):
            cloud_codec(frames.JSON).decode(broken)


def test_messages_leave_at_ticks_to_the_end_of_a_run() -> None:
    cadence, now, left = Cadence(0.05), 100.0, []
    for tick in range(1000):
        now += cadence.wait_s(now) + 0.001
        left.append(now)
        cadence.sent(now, busy=tick < 70)
        if not cadence.running:
            break
        now += 0.013
    assert len(left) == 2 * RUN_TICKS
    gaps = [after - before for before, after in pairwise(left[1:])]
    assert min(gaps) == pytest.approx(0.05)
    assert max(gaps) == pytest.approx(0.05)
    assert cadence.wait_s(now) == 0.0


def test_a_tick_that_was_missed_is_not_made_up_for() -> None:
    cadence = Cadence(0.05)
    cadence.sent(0.0, busy=True)
    cadence.sent(0.23, busy=True)
    assert cadence.wait_s(0.23) == pytest.approx(0.02)
    cadence.sent(0.25, busy=True)
    assert cadence.wait_s(0.25) == pytest.approx(0.05)
