"""The edges' WebSocket: streams, drafts, resume, and what outlives a socket."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from app.engine.generation import PARK_AHEAD
from edge.protocol import frames
from tests.app.api.peer import dialled, greeted, opening, reference
from tests.app.serving import MODEL, Running, Steps, scripted, serving, until


@pytest.mark.parametrize("subprotocol", frames.SUBPROTOCOLS)
async def test_a_stream_gives_what_the_model_says_and_ends(running: Running, subprotocol: str) -> None:
    async with dialled(running, subprotocol) as peer:
        await peer.send(frames.Hello(frames.VERSION, auth=running.key, fingerprint="other"))
        welcome = await peer.expect(frames.Welcome)
        assert welcome.limits == running.gateway.settings.limits
        assert [(model.id, model.match) for model in welcome.models] == [(MODEL, False)]
    async with greeted(running, subprotocol, fingerprint=welcome.models[0].fingerprint) as peer:
        await peer.send(opening(7))
        opened = await peer.expect(frames.Opened)
        assert (opened.stream, opened.prompt_length, opened.head, opened.epoch) == (7, 5, 0, 0)
        assert opened.window >= 1
        assert opened.prompt == ()
        tokens, finish = await peer.output(7)
        assert tokens == reference(running)
        assert (finish.reason, finish.kept_bytes) == ("length", None)
        assert (finish.usage.prompt, finish.usage.completion, finish.usage.steps) == (5, 30, 30)


async def test_drafts_are_verified_and_never_change_the_text(tmp_path: Path) -> None:
    steps = Steps()
    async with serving(tmp_path, scripted(sleep=steps.wait, step_s=1.0), steps=steps) as running:
        right = reference(running)
        wrong = (right[10] + 1) % running.script.vocabulary.size
        async with greeted(running) as peer:
            await peer.send(opening(1), frames.Draft(1, 0, 0, tuple(right[:8])))
            await peer.send(frames.Draft(1, 0, 8, (*right[8:10], wrong, 5)), frames.Ping(1))
            await peer.expect(frames.Pong)  # so all of it has been taken
            steps.run_free()
            tokens, finish = await peer.output(1)
        assert tokens == right
        assert finish.usage.accepted + finish.usage.matched == 10
        assert finish.usage.steps < 30


async def test_streams_on_one_socket_do_not_meet(running: Running) -> None:
    prompts = {stream: (104, 105, 100 + stream) for stream in range(1, 7)}
    async with greeted(running) as peer:
        await peer.send(*(opening(stream, prompt=prompt) for stream, prompt in prompts.items()))
        outputs: dict[int, list[int]] = {stream: [] for stream in prompts}
        left = set(prompts)
        while left:
            frame = await peer.frame()
            if isinstance(frame, frames.Commit):
                assert frame.start == len(outputs[frame.stream])
                outputs[frame.stream] += frame.tokens
            elif isinstance(frame, frames.Finish):
                left.discard(frame.stream)
    assert outputs == {stream: reference(running, prompt=prompt) for stream, prompt in prompts.items()}


async def test_messages_are_templated_here_and_commits_carry_text_when_asked_for(running: Running) -> None:
    vocabulary = running.script.vocabulary
    message = frames.Message("user", "hello")
    prompt = vocabulary.render([message])
    tokens = reference(running, 40, tuple(prompt))
    text = b"".join(map(vocabulary.piece, tokens)).decode()
    async with greeted(running) as peer:
        await peer.send(opening(1, prompt=(), messages=(message,), text=True, max_tokens=40, stop=(text[20:24],)))
        opened = await peer.expect(frames.Opened)
        assert list(opened.prompt) == prompt
        assert "".join(opened.pieces) == b"".join(map(vocabulary.piece, prompt)).decode()
        shown = ""
        while not isinstance(frame := await peer.frame(), frames.Finish):
            assert isinstance(frame, frames.Commit)
            assert sum(frame.cuts) == len(frame.text)
            assert len(frame.cuts) == len(frame.tokens)
            shown += frame.text
        assert shown == text[:20]
        assert (frame.reason, frame.kept_bytes) == ("stop", 20)


async def test_text_that_might_have_begun_a_stop_string_comes_before_finish(running: Running) -> None:
    text = b"".join(map(running.script.vocabulary.piece, reference(running, 10))).decode()
    async with greeted(running) as peer:
        await peer.send(opening(1, text=True, max_tokens=10, stop=(text[-2:] + "☃",)))
        shown = ""
        while not isinstance(frame := await peer.frame(), frames.Finish):
            shown += getattr(frame, "text", "")
        assert shown == text


async def test_cancel_ends_a_stream_within_one_step(tmp_path: Path) -> None:
    steps = Steps()
    engine = scripted(sleep=steps.wait, step_s=1.0)
    async with serving(tmp_path, engine, steps=steps) as running, greeted(running) as peer:
        await peer.send(opening(1))
        steps.allow(2)
        tokens = 0
        while tokens < 2:
            tokens += len((await peer.expect(frames.Commit)).tokens)
        await peer.send(frames.Cancel(1), frames.Ping(1))
        await peer.expect(frames.Pong)
        steps.allow(1)  # the one that was under way
        finish = await peer.expect(frames.Finish)
        assert finish.reason == "cancelled"
        assert finish.length <= 3
        await peer.send(frames.Cancel(1), frames.Draft(1, 0, 3, (1,)), frames.Ping(2))  # they crossed the finish
        assert await peer.frame() == frames.Pong(2)


async def test_a_seed_is_drawn_and_told(running: Running) -> None:
    async with greeted(running) as peer:
        await peer.send(opening(1, sampling=frames.Sampling()), opening(2, sampling=frames.Sampling()))
        one = await peer.expect(frames.Opened, stream=1)
        first, _ = await peer.output(1)
    async with greeted(running) as peer:
        await peer.send(opening(1, sampling=frames.Sampling(seed=one.seed)))
        assert (await peer.output(1))[0] == first


async def test_an_output_that_the_device_carries_goes_on_in_its_positions(running: Running) -> None:
    whole = reference(running)
    async with greeted(running) as peer:
        sampling = frames.Sampling(temperature=0, seed=1)
        await peer.send(opening(1, committed=tuple(whole[:12]), sampling=sampling))
        opened = await peer.expect(frames.Opened)
        assert opened.head == 12
        tokens, finish = await peer.output(1, whole[:12])
        assert tokens == whole
        assert finish.length == 30
    await running.gateway.usage.flush()
    (row,) = await running.gateway.repository.usage(tenant="default")
    assert row.counts.completion == 18, "what was made elsewhere was counted there"


async def test_a_lost_socket_parks_its_stream_and_another_goes_on_with_it(tmp_path: Path) -> None:
    steps = Steps()
    async with serving(tmp_path, scripted(sleep=steps.wait, step_s=1.0), steps=steps) as running:
        whole = reference(running, 100)
        async with greeted(running) as peer:
            await peer.send(opening(1, max_tokens=100))
            opened = await peer.expect(frames.Opened)
            steps.allow(1)
            held = list((await peer.expect(frames.Commit)).tokens)
            peer.socket.transport.abort()
        (stream,) = running.gateway.streams
        await until(lambda: stream.holder is None)
        steps.run_free()
        generation = stream.generation
        await until(lambda: len(generation.ledger) == generation.delivered + PARK_AHEAD)
        async with greeted(running) as peer:
            await peer.send(opening(1))
            await peer.output(1)  # the engine has gone on for thirty steps, but not with the parked stream
            assert len(generation.ledger) == generation.delivered + PARK_AHEAD < 100
            await peer.send(frames.Resume(5, opened.resume, len(held)))
            again = await peer.expect(frames.Opened)
            assert (again.stream, again.resume, again.seed) == (5, opened.resume, opened.seed)
            assert again.head == 1 + PARK_AHEAD
            tokens, _ = await peer.output(5, held)
            assert tokens == whole


async def test_a_finished_stream_is_given_again_through_the_grace_time(running: Running) -> None:
    async with greeted(running) as peer:
        await peer.send(opening(1))
        opened = await peer.expect(frames.Opened)
        tokens, finish = await peer.output(1)
    async with greeted(running) as peer:
        await peer.send(frames.Resume(1, opened.resume, 3))
        assert (await peer.output(1, tokens[:3]))[0] == tokens
        await peer.send(frames.Resume(2, opened.resume, 30))
        assert (await peer.output(2, list(tokens)))[1].usage == finish.usage
    assert len(running.gateway.streams) == 1


async def test_after_the_grace_time_nothing_is_left(tmp_path: Path) -> None:
    async with serving(tmp_path, grace_s=0.05) as running:
        async with greeted(running) as peer:
            await peer.send(opening(1), opening(2, max_tokens=2000))
            opened = await peer.expect(frames.Opened, stream=1)
        await until(lambda: len(running.gateway.streams) == 0)
        await until(lambda: running.gateway.engine.load().running == 0)
        async with greeted(running) as peer:
            await peer.send(frames.Resume(1, opened.resume, 0))
            error = await peer.expect(frames.Error)
            assert (error.stream, error.code, error.final) == (1, "unknown_resume", True)


async def test_a_resumed_stream_fences_its_old_socket(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, scripted(step_s=0.001), grace_s=0.05) as running,
        greeted(running) as old,
        greeted(running) as new,
    ):
        await old.send(opening(1, max_tokens=400))
        opened = await old.expect(frames.Opened)
        await new.send(frames.Resume(1, opened.resume, 0))
        await new.expect(frames.Opened)
        seen, code = await old.closed()
        assert (code, seen[-1].code) == (4409, "fenced")
        tokens, _ = await new.output(1)  # the old socket's end came within it, and the grace time after that
        assert tokens == reference(running, 400)


async def test_a_resume_that_was_long_on_its_way_does_not_take_the_stream_back(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, scripted(step_s=0.001)) as running,
        greeted(running) as oldest,
        greeted(running) as old,
        greeted(running) as new,
    ):
        await old.send(opening(1, max_tokens=400))
        opened = await old.expect(frames.Opened)
        await new.send(frames.Resume(1, opened.resume, 0))
        await new.expect(frames.Opened)
        await oldest.send(frames.Resume(1, opened.resume, 0), frames.Ping(1))
        error = await oldest.expect(frames.Error)
        assert (error.stream, error.code, error.final) == (1, "fenced", True)
        await oldest.expect(frames.Pong)
        assert (await new.output(1))[0] == reference(running, 400)


async def test_an_output_that_is_carried_whole_is_finished_at_once(running: Running) -> None:
    whole = reference(running)
    sampling = frames.Sampling(temperature=0, seed=1)
    async with greeted(running) as peer:
        await peer.send(opening(1, committed=tuple(whole), sampling=sampling))
        tokens, finish = await peer.output(1, list(whole))
        assert (tokens, finish.reason, finish.usage.steps) == (whole, "length", 0)
        await peer.send(opening(2, committed=(*whole, 1), sampling=sampling))
        error = await peer.expect(frames.Error)
        assert (error.code, error.message[:9]) == ("invalid_request", "committed")


async def test_a_resume_token_is_its_tenants_alone(running: Running) -> None:
    other = await running.gateway.tenants.create_key("other", "")
    async with greeted(running) as peer, greeted(running, key=other) as thief:
        await peer.send(opening(1))
        opened = await peer.expect(frames.Opened)
        name, _, _ = opened.resume.partition(".")
        for stream, token in enumerate((opened.resume, f"{name}.", f"{name}.x", "", "ü.ü")):
            await thief.send(frames.Resume(stream, token, 0))
            assert (await thief.expect(frames.Error)).code == "unknown_resume"
        assert (await peer.output(1))[1].reason == "length"


async def test_an_engine_that_breaks_ends_its_streams_with_a_code(tmp_path: Path) -> None:
    async with serving(tmp_path, scripted(fail_at=5)) as running, greeted(running) as peer:
        await peer.send(opening(1))
        error = await peer.expect(frames.Error)
        assert (error.stream, error.code, error.final) == (1, "engine_failed", True)
        await peer.send(opening(2))
        error = await peer.expect(frames.Error)
        assert (error.stream, error.code, error.final) == (2, "engine_failed", True)


async def test_a_ticket_opens_one_socket(running: Running) -> None:
    async with httpx2.AsyncClient(base_url=running.url, headers=running.headers) as http:
        ticket = (await http.post("/v1/tickets")).json()["ticket"]
    async with dialled(running) as peer:
        await peer.send(frames.Hello(frames.VERSION, ticket=ticket))
        await peer.expect(frames.Welcome)
        await peer.send(opening(1))
        assert (await peer.output(1))[0] == reference(running)
    async with dialled(running) as peer:
        await peer.send(frames.Hello(frames.VERSION, ticket=ticket))
        assert (await peer.closed())[1] == 4401
    assert len(running.gateway.tickets) == 0


async def test_a_stop_of_the_gateway_closes_sockets_without_ending_their_streams(tmp_path: Path) -> None:
    """The device carries its stream to the next gateway: it must not be told that the stream is over."""
    async with serving(tmp_path, scripted(step_s=0.005)) as running:
        connected = greeted(running)
        peer = await connected.__aenter__()
        await peer.send(opening(1, max_tokens=2000))
        await peer.expect(frames.Commit)
    seen, code = await peer.closed()
    assert code == 1012
    assert not any(isinstance(frame, frames.Finish) for frame in seen)
    await connected.__aexit__(None, None, None)


async def test_a_handshake_without_our_subprotocol_is_refused(running: Running) -> None:
    url = running.url.replace("http", "ws") + "/v1/verify"
    for subprotocols in (None, [Subprotocol("paceline.v2.msgpack")]):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url, subprotocols=subprotocols):
                pass
        assert refused.value.response.status_code == 400


async def test_a_key_that_nobody_can_check_now_is_not_a_wrong_one(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(running.gateway.repository, "tenant_of_key", away)
    async with dialled(running) as peer:
        await peer.send(frames.Hello(frames.VERSION, auth=running.key))
        assert await peer.closed() == ([], 1013)
