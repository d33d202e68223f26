from __future__ import annotations

import asyncio
import random
import socket
from itertools import islice

import pytest

from edge.address import verify_url
from edge.connection import Connection, Timing, pauses
from edge.errors import Closed, ConnectionLost, Unreachable
from edge.protocol import errors, frames
from edge.protocol.frames import Cancel, Commit, Error, Hello, Limits, Open, Resume
from edge.protocol.padding import Padded, Padding
from tests.edge.peer import Peer, Told, finish, opened, playing, stream

QUICK = Timing(connect_s=5.0, backoff_s=0.001, backoff_cap_s=0.01)


@pytest.mark.parametrize("codec", frames.SUBPROTOCOLS)
async def test_says_who_it_is_and_runs_a_stream(codec: str) -> None:
    heard: list[Hello] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        assert peer.hello is not None
        heard.append(peer.hello)
        request = await peer.take(Open)
        await peer.send(opened(request.stream), Commit(request.stream, 0, (5, 6)), finish(request.stream, 2))
        await peer.gone()

    told = Told()
    async with playing(play) as url, Connection(url, key="k", fingerprint="f" * 64, codec=codec) as connection:
        assert connection.welcome.models[0].id == "m"
        own = stream(told)
        connection.open(own)
        await told.over()
    assert heard[0].version == frames.VERSION
    assert (heard[0].auth, heard[0].fingerprint) == ("k", "f" * 64)
    assert own.session.ledger.tokens == [5, 6]
    assert told.error is None


async def test_streams_share_the_socket_and_get_their_own_frames() -> None:
    async def play(peer: Peer) -> None:
        await peer.greet()
        first, second = await peer.take(Open), await peer.take(Open)
        assert first.stream != second.stream
        await peer.send(opened(second.stream), opened(first.stream))
        await peer.send(Commit(second.stream, 0, (2,)), Commit(first.stream, 0, (1,)))
        await peer.send(finish(first.stream, 1), finish(second.stream, 1))
        await peer.gone()

    told = [Told(), Told()]
    async with playing(play) as url, Connection(url, key="k") as connection:
        streams = [stream(told[0]), stream(told[1])]
        for own in streams:
            connection.open(own)
        for listener in told:
            await listener.over()
    assert [own.session.ledger.tokens for own in streams] == [[1], [2]]


async def test_a_lost_socket_is_replaced_and_the_stream_resumed() -> None:
    taken: list[Resume] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        if peer.number == 0:
            request = await peer.take(Open)
            await peer.send(opened(request.stream, resume="secret"), Commit(request.stream, 0, (1, 2, 3)))
            await told.until(lambda: told.commits)
            peer.cut()
            return
        resume = await peer.take(Resume)
        taken.append(resume)
        await peer.send(opened(resume.stream, head=5), Commit(resume.stream, 3, (4, 5)), finish(resume.stream, 5))
        await peer.gone()

    told = Told()
    async with playing(play) as url, Connection(url, key="k", timing=QUICK) as connection:
        own = stream(told)
        connection.open(own)
        await told.over()
    assert own.session.ledger.tokens == [1, 2, 3, 4, 5]
    assert (taken[0].token, taken[0].held) == ("secret", 3)
    assert own.attachments == 2


async def test_a_refused_resume_opens_anew_with_all_that_is_needed() -> None:
    again: list[Open] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        if peer.number == 0:
            request = await peer.take(Open)
            await peer.send(opened(request.stream), Commit(request.stream, 0, (1, 2)))
            await told.until(lambda: told.commits)
            peer.cut()
            return
        resume = await peer.take(Resume)
        await peer.send(Error(resume.stream, "unknown_resume", final=True))
        request = await peer.take(Open)
        assert request.stream != resume.stream
        again.append(request)
        await peer.send(opened(request.stream, head=2), Commit(request.stream, 2, (3,)), finish(request.stream, 3))
        await peer.gone()

    told = Told()
    async with playing(play) as url, Connection(url, key="k", timing=QUICK) as connection:
        own = stream(told, seed=None)  # the cloud drew it
        connection.open(own)
        await told.over()
    assert own.session.ledger.tokens == [1, 2, 3]
    assert again[0].committed == (1, 2)
    assert again[0].sampling.seed == 7


async def test_a_stream_that_finds_the_gateway_full_comes_back_later() -> None:
    async def play(peer: Peer) -> None:
        await peer.greet()
        request = await peer.take(Open)
        if peer.number == 0:
            peer.cut()
            return
        await peer.send(Error(request.stream, "overloaded", final=True, retry_after_s=0.01))
        request = await peer.take(Open)
        await peer.send(opened(request.stream), Commit(request.stream, 0, (1,)), finish(request.stream, 1))
        await peer.gone()

    told = Told()
    async with playing(play) as url, Connection(url, key="k", timing=QUICK) as connection:
        own = stream(told)
        connection.open(own)
        await told.over()
    assert own.session.ledger.tokens == [1]
    assert own.attachments == 3


async def test_a_new_stream_is_told_that_the_gateway_is_full() -> None:
    async def play(peer: Peer) -> None:
        await peer.greet()
        request = await peer.take(Open)
        await peer.send(Error(request.stream, "overloaded", "busy", final=True, retry_after_s=3.0))
        await peer.gone()

    told = Told()
    async with playing(play) as url, Connection(url, key="k") as connection:
        connection.open(stream(told))
        await told.over()
    assert isinstance(told.error, errors.Overloaded)
    assert told.error.retry_after_s == 3.0


async def test_after_the_grace_time_the_stream_fails_with_what_happened() -> None:
    told = Told()

    async def play(peer: Peer) -> None:
        await peer.greet(Limits(grace_s=0.05))
        request = await peer.take(Open)
        await peer.send(opened(request.stream), Commit(request.stream, 0, (1, 2)))
        await peer.gone()

    async with playing(play) as url:
        connection = await Connection(url, key="k", timing=QUICK).__aenter__()
        connection.open(stream(told))
        await told.until(lambda: told.commits)
    await told.over()  # the server is gone
    assert isinstance(told.error, ConnectionLost)
    assert "0.05 s" in str(told.error)
    assert "2 output tokens" in str(told.error)
    await connection.close()


@pytest.mark.parametrize(
    ("code", "kind"), [("invalid_api_key", errors.Unauthorised), ("version_mismatch", errors.VersionMismatch)]
)
async def test_what_the_gateway_says_to_hello_is_raised(code: str, kind: type[Exception]) -> None:
    async def play(peer: Peer) -> None:
        await peer.receive()
        await peer.send(Error(None, code, "no", final=True))
        await peer.close(4401)

    async with playing(play) as url:
        with pytest.raises(kind, match="no"):
            await Connection(url, key="k").__aenter__()


@pytest.mark.parametrize(
    ("code", "kind"), [(4401, errors.Unauthorised), (4409, errors.Fenced), (4429, errors.TooManyErrors)]
)
async def test_a_refusal_for_good_is_not_tried_again(code: int, kind: type[Exception]) -> None:
    sockets: list[int] = []

    async def play(peer: Peer) -> None:
        sockets.append(peer.number)
        await peer.greet()
        await peer.take(Open)
        await peer.close(code, "told")

    told = Told()
    async with playing(play) as url, Connection(url, key="k", timing=QUICK) as connection:
        connection.open(stream(told))
        await told.over()
        assert isinstance(told.error, kind)
        with pytest.raises(kind):
            connection.open(stream(Told()))
    assert sockets == [0]


async def test_a_key_that_was_revoked_meanwhile_ends_the_streams() -> None:
    async def play(peer: Peer) -> None:
        if peer.number == 0:
            await peer.greet()
            await peer.take(Open)
            peer.cut()
            return
        await peer.receive()
        await peer.send(Error(None, "invalid_api_key", "revoked", final=True))
        await peer.close(4401)

    told = Told()
    async with playing(play) as url, Connection(url, key="k", timing=QUICK) as connection:
        connection.open(stream(told))
        await told.over()
    assert isinstance(told.error, errors.Unauthorised)


async def test_a_silent_socket_is_a_lost_one() -> None:
    async def play(peer: Peer) -> None:
        await peer.greet()
        if peer.number == 0:
            peer.answers_pings = False
            await peer.gone()
            return
        request = await peer.take(Open)
        await peer.send(opened(request.stream), finish(request.stream, 0))
        await peer.gone()

    told = Told()
    timing = Timing(ping_s=0.01, silent_s=0.05, backoff_s=0.001)
    async with playing(play) as url, Connection(url, key="k", timing=timing) as connection:
        connection.open(stream(told))
        await told.over()
    assert told.finish is not None


async def test_pings_measure_the_round_trip() -> None:
    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.gone()

    now = [0.0]

    async def sleep(_: float) -> None:
        await asyncio.Event().wait()

    async with playing(play) as url, Connection(url, key="k", clock=lambda: now[0], sleep=sleep) as connection:
        assert connection.rtt_s is None
        connection.open(stream(Told()))
        while connection.rtt_s is None:
            now[0] += 0.5
            await asyncio.sleep(0)
        assert connection.rtt_s >= 0.5


async def test_without_streams_a_lost_socket_stays_lost_until_one_is_wanted() -> None:
    sockets: list[int] = []
    lost = asyncio.Event()

    async def play(peer: Peer) -> None:
        sockets.append(peer.number)
        await peer.greet()
        if peer.number == 0:
            await peer.close(4408, "idle_timeout")
            lost.set()
            return
        request = await peer.take(Open)
        await peer.send(opened(request.stream), finish(request.stream, 0))
        await peer.gone()

    told = Told()
    async with playing(play) as url, Connection(url, key="k", timing=QUICK) as connection:
        await lost.wait()
        while connection.connected:  # noqa: ASYNC110 (it says so to nobody)
            await asyncio.sleep(0)
        assert sockets == [0]
        connection.open(stream(told))
        await told.over()
    assert told.finish is not None
    assert sockets == [0, 1]


@pytest.mark.parametrize(
    ("bad", "kind"), [(Commit(0, 9, (1,)), errors.Gap), (Commit(0, 0, (8,)), errors.Contradiction)]
)
async def test_a_stream_that_the_gateway_breaks_ends_and_the_others_go_on(bad: Commit, kind: type[Exception]) -> None:
    cancelled: list[int] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        other = await peer.take(Open)
        await peer.send(opened(0), Commit(0, 0, (1,)), bad)
        cancelled.append((await peer.take(Cancel)).stream)
        await peer.send(opened(other.stream), Commit(other.stream, 0, (5,)), finish(other.stream, 1))
        await peer.gone()

    broken, whole = Told(), Told()
    async with playing(play) as url, Connection(url, key="k") as connection:
        connection.open(stream(broken))
        connection.open(stream(whole))
        await broken.over()
        await whole.over()
    assert isinstance(broken.error, kind)
    assert whole.finish is not None
    assert cancelled == [0]


async def test_frames_that_say_nothing_to_us_are_left_out() -> None:
    async def play(peer: Peer) -> None:
        await peer.greet()
        request = await peer.take(Open)
        await peer.send_raw(b"\x92\xa7unheard\x00")
        await peer.send_raw(b"\xff\xff")
        await peer.send(Commit(99, 0, (1,)), Error(None, "bad_frame"))
        await peer.send(opened(request.stream), finish(request.stream, 0))
        await peer.gone()

    told = Told()
    async with playing(play) as url, Connection(url, key="k") as connection:
        connection.open(stream(told))
        await told.over()
    assert told.finish is not None


async def test_closing_cancels_what_runs() -> None:
    cancels: list[Cancel] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        request = await peer.take(Open)
        await peer.send(opened(request.stream))
        cancels.append(await peer.take(Cancel))
        await peer.gone()

    told = Told()
    async with playing(play) as url:
        async with Connection(url, key="k") as connection:
            connection.open(stream(told))
            await told.until(lambda: told.opened_)
        with pytest.raises(Closed):
            connection.open(stream(Told()))
    assert isinstance(told.error, Closed)
    assert len(cancels) == 1


async def test_more_streams_than_the_gateway_takes_are_refused_here() -> None:
    async def play(peer: Peer) -> None:
        await peer.greet(Limits(streams=1))
        await peer.gone()

    async with playing(play) as url, Connection(url, key="k") as connection:
        connection.open(stream(Told()))
        with pytest.raises(errors.TooManyStreams):
            connection.open(stream(Told()))


async def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(Unreachable, match=f"no gateway at ws://127.0.0.1:{port}/v1/verify"):
        await Connection(f"http://127.0.0.1:{port}", key="k").__aenter__()


async def test_somebody_there_who_says_nothing() -> None:
    async def play(peer: Peer) -> None:
        await peer.gone()

    async with playing(play) as url:
        with pytest.raises(Unreachable, match="no answer"):
            await Connection(url, key="k", timing=Timing(connect_s=0.05)).__aenter__()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h:8000", "ws://h:8000/v1/verify"),
        ("https://h/", "wss://h/v1/verify"),
        ("https://h/llm/v1", "wss://h/llm/v1/verify"),
        ("wss://h/v1/verify", "wss://h/v1/verify"),
        ("localhost:8000", "ws://localhost:8000/v1/verify"),
    ],
)
def test_addresses(given: str, url: str) -> None:
    assert verify_url(given) == url


def test_pauses_grow_and_differ_between_devices() -> None:
    timing = Timing(backoff_s=0.1, backoff_cap_s=1.0)
    ours = list(islice(pauses(timing, random.Random(1)), 8))  # noqa: S311
    theirs = list(islice(pauses(timing, random.Random(2)), 8))  # noqa: S311
    assert ours != theirs
    for pause, full in zip(ours, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0), strict=True):
        assert full / 2 <= pause <= full


async def test_a_gateway_that_cannot_pad_gets_nothing_unpadded() -> None:
    async def play(peer: Peer) -> None:
        await peer.greet()
        envelope = await peer.receive()
        assert isinstance(envelope, Padded)
        await peer.send(Error(None, "unknown_frame", "unknown frame type 'pad'"))
        while True:
            assert isinstance(await peer.receive(), Padded)

    told = Told()
    async with playing(play) as url, Connection(url, key="k", padding=Padding()) as connection:
        connection.open(stream(told))
        await told.over()
        assert isinstance(told.error, errors.VersionMismatch)
        assert connection.ended


async def test_a_resting_socket_that_is_taken_away_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    rested = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.greet()
        if peer.number == 0:
            await peer.send(Error(None, errors.Idle.code, "no streams"))
            await peer.close(4408)
            rested.set()
            return
        request = await peer.take(Open)
        await peer.send(opened(request.stream), Commit(request.stream, 0, (5,)), finish(request.stream, 1))
        await peer.gone()

    told = Told()
    async with playing(play) as url, Connection(url, key="k", timing=QUICK) as connection:
        await rested.wait()
        while connection.connected:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.001)
        own = stream(told)
        connection.open(own)
        await told.over()
    assert own.session.ledger.tokens == [5]
    assert not caplog.records
