"""The hybrid path whole: runtime, WebSocket, gateway, engine, on the scripted model. The text is the target's."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench.link import Link
from bench.wan import Wan
from edge.connection import Connection, Timing
from edge.drafters.base import Drafter
from edge.drafters.ngram import NgramDrafter
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.errors import ConnectionLost
from edge.events import Committed, Drafted, Ended, Event, RolledBack
from edge.protocol.frames import JSON, MSGPACK, Message, Policy, Sampling
from edge.runtime import Generate, Runtime
from edge.script import Script, ScriptVocabulary
from tests.e2e.gateway import Gateway

SCRIPT = Script(ScriptVocabulary())
PROMPT = tuple(SCRIPT.vocabulary.encode("the quick brown fox jumps over the lazy dog"))
GREEDY = Sampling(temperature=0)
SAMPLED = Sampling(temperature=0.8, top_p=0.95, seed=11)
TOKENS = 48
QUICK = Timing(backoff_s=0.001, backoff_cap_s=0.02)
DRAFTERS: dict[str, Drafter | None] = {
    "right": ScriptedDrafter(SCRIPT, right_with(1.0)),
    "60%": ScriptedDrafter(SCRIPT, right_with(0.6)),
    "wrong": ScriptedDrafter(SCRIPT, right_with(0.0)),
    "slow": ScriptedDrafter(SCRIPT, right_with(0.8), draft_s=0.003),
    "ngram": NgramDrafter(),
    "none": None,
}


@dataclass
class Seen:
    """A reader that keeps the speculative tail as the events tell it, and checks that they add up."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    tail: list[int] = field(default_factory=list)
    ended: Ended | None = None
    origins: list[str] = field(default_factory=list)

    def take(self, event: Event) -> None:
        assert self.ended is None, "nothing comes after the end"
        match event:
            case Drafted(start=start, tokens=tokens):
                assert start == len(self.tokens) + len(self.tail)
                self.tail += tokens
            case Committed(start=start, tokens=new, agreed=agreed, text=text):
                assert start == len(self.tokens), "no token lost or doubled"
                ids = [token.id for token in new]
                assert self.tail[:agreed] == ids[:agreed]
                del self.tail[:agreed]
                self.tokens += ids
                self.origins += [token.origin for token in new]
                self.text += text
            case RolledBack(tokens=tokens):
                assert list(tokens) == self.tail
                self.tail.clear()
            case Ended():
                self.ended = event
                self.text += event.text

    async def read(self, events: AsyncIterator[Event]) -> Seen:
        async for event in events:
            self.take(event)
        assert self.ended is not None
        assert not self.tail, "what was drafted is committed or rolled back in the end"
        return self


@asynccontextmanager
async def device(
    gateway: Gateway, drafter: Drafter | None, *, port: int = 0, codec: str = MSGPACK
) -> AsyncIterator[Runtime]:
    url = f"http://127.0.0.1:{port}" if port else gateway.url
    async with (
        Connection(
            url, key=gateway.key, codec=codec, timing=QUICK, fingerprint=drafter.fingerprint if drafter else ""
        ) as connection,
        Runtime(connection, drafter, vocabulary=SCRIPT.vocabulary) as runtime,
    ):
        yield runtime


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path, SCRIPT, step_s=0.001) as serving:
        yield serving


async def reference(gateway: Gateway, request: Generate) -> Seen:
    """Cloud-only, over the same socket."""
    async with device(gateway, None) as runtime:
        return await Seen().read(runtime.generate(request))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", DRAFTERS)
async def test_hybrid_is_cloud_only_under_every_policy(gateway: Gateway, name: str, sampling: Sampling) -> None:
    request = Generate(prompt=PROMPT, sampling=sampling, max_tokens=TOKENS)
    alone = await reference(gateway, request)
    assert len(alone.tokens) == TOKENS
    async with device(gateway, DRAFTERS[name]) as runtime:
        for policy in ("eager", "hold", "sync"):
            seen = await Seen().read(runtime.generate(_with(request, policy)))
            assert seen.tokens == alone.tokens
            assert seen.text == alone.text


@pytest.mark.parametrize("codec", [MSGPACK, JSON])
async def test_right_drafts_save_steps_and_wrong_ones_cost_none(gateway: Gateway, codec: str) -> None:
    request = Generate(prompt=PROMPT, sampling=GREEDY, max_tokens=TOKENS, policy="hold")
    async with device(gateway, DRAFTERS["right"], codec=codec) as runtime:
        right = await Seen().read(runtime.generate(request))
    async with device(gateway, DRAFTERS["wrong"], codec=codec) as runtime:
        wrong = await Seen().read(runtime.generate(request))
    assert right.ended is not None
    assert wrong.ended is not None
    assert right.ended.usage.steps < TOKENS
    assert right.ended.figures.acceptance_rate == 1.0
    assert right.origins.count("accepted") == right.ended.usage.accepted > 0
    assert wrong.ended.usage.steps == TOKENS
    assert wrong.ended.figures.acceptance_rate == 0.0
    assert "corrected" in wrong.origins
    assert "accepted" not in wrong.origins


async def test_streams_run_side_by_side(gateway: Gateway) -> None:
    requests = [
        Generate(prompt=(*PROMPT, i), sampling=Sampling(temperature=0.8, seed=i), max_tokens=TOKENS) for i in range(8)
    ]
    alone = [await reference(gateway, request) for request in requests]
    async with device(gateway, DRAFTERS["60%"]) as runtime:
        together = await asyncio.gather(*(Seen().read(runtime.generate(request)) for request in requests))
    assert [seen.tokens for seen in together] == [seen.tokens for seen in alone]


@pytest.mark.parametrize("policy", ["eager", "hold"])
@pytest.mark.parametrize("seed", range(4))
async def test_a_cut_connection_loses_and_doubles_nothing(gateway: Gateway, policy: Policy, seed: int) -> None:
    request = Generate(prompt=PROMPT, sampling=SAMPLED, max_tokens=96, policy=policy)
    alone = await reference(gateway, request)
    cuts = set(random.Random(seed).sample(range(1, 96), 4))  # noqa: S311
    async with (
        Wan(gateway.port, Link(rtt_s=0.004), seed=seed) as wan,
        device(gateway, DRAFTERS["60%"], port=wan.port) as runtime,
    ):
        seen = Seen()
        async for event in runtime.generate(request):
            seen.take(event)
            if any(cut <= len(seen.tokens) for cut in cuts):
                cuts = {cut for cut in cuts if cut > len(seen.tokens)}
                wan.cut()
                wan.mend()
    assert seen.tokens == alone.tokens
    assert seen.text == alone.text
    assert seen.ended is not None
    assert seen.ended.measures.attachments > 1


@pytest.mark.parametrize("by_cloud", [False, True], ids=["device's tokenizer", "cloud's text"])
async def test_a_restarted_gateway_goes_on_from_what_the_device_holds(tmp_path: Path, by_cloud: bool) -> None:
    prompt = Generate(prompt=PROMPT, sampling=SAMPLED, max_tokens=96)
    chat = Generate(messages=(Message("user", "hello"),), sampling=SAMPLED, max_tokens=96)
    request = chat if by_cloud else prompt
    drafter = NgramDrafter() if by_cloud else DRAFTERS["60%"]
    vocabulary = None if by_cloud else SCRIPT.vocabulary
    restarted = asyncio.Event()
    async with Gateway(tmp_path, SCRIPT, step_s=0.002) as first:
        alone = await reference(first, request)
        connection = await Connection(first.url, key=first.key, timing=QUICK).__aenter__()
        runtime = Runtime(connection, drafter, vocabulary=vocabulary)
        half = asyncio.Event()
        seen = Seen()

        async def read() -> None:
            async for event in runtime.generate(request):
                seen.take(event)
                if len(seen.tokens) >= 20 and not half.is_set():
                    half.set()
                    await restarted.wait()

        reading = asyncio.create_task(read())
        await half.wait()
    async with Gateway(tmp_path, SCRIPT, port=first.port, step_s=0.001):
        restarted.set()
        await reading
        await runtime.close()
        await connection.close()
    assert seen.tokens == alone.tokens
    assert seen.text == alone.text
    assert seen.ended is not None
    assert seen.ended.measures.attachments > 1


async def test_after_the_grace_time_there_is_a_clear_error(tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, SCRIPT, step_s=0.005, grace_s=0.1) as gateway,
        Wan(gateway.port, Link()) as wan,
        device(gateway, DRAFTERS["60%"], port=wan.port) as runtime,
    ):
        seen = Seen()

        async def read() -> None:
            async for event in runtime.generate(Generate(prompt=PROMPT, sampling=GREEDY, max_tokens=500)):
                seen.take(event)
                if seen.tokens:
                    wan.cut()

        with pytest.raises(ConnectionLost, match=r"gone for over 0.1 s; \d+ output tokens"):
            await read()
        assert seen.tokens == SCRIPT.greedy(PROMPT, len(seen.tokens))


async def test_leaving_early_cancels_the_stream(gateway: Gateway) -> None:
    async with device(gateway, DRAFTERS["60%"]) as runtime:
        async with aclosing(runtime.generate(Generate(prompt=PROMPT, sampling=GREEDY, max_tokens=2000))) as events:
            async for event in events:
                if isinstance(event, Committed):
                    break
        async with asyncio.timeout(10):
            while gateway.engine.load().running:  # noqa: ASYNC110 (the engine tells nobody)
                await asyncio.sleep(0.001)


async def test_a_device_without_a_tokenizer_gets_the_clouds_text(gateway: Gateway) -> None:
    messages = (Message("user", "say héllo, say héllo"),)
    request = Generate(messages=messages, sampling=SAMPLED, max_tokens=TOKENS, stop=("zq",))
    alone = await reference(gateway, request)
    async with (
        Connection(gateway.url, key=gateway.key) as connection,
        Runtime(connection, NgramDrafter()) as runtime,
    ):
        seen = await Seen().read(runtime.generate(request))
    assert seen.tokens == alone.tokens
    assert seen.text == alone.text


async def test_stop_strings_cut_the_text_on_the_device_too(gateway: Gateway) -> None:
    whole = await reference(gateway, Generate(prompt=PROMPT, sampling=GREEDY, max_tokens=TOKENS))
    stop = whole.text[20:23]
    expected = whole.text[: whole.text.index(stop)]
    for name in ("right", "60%"):
        async with device(gateway, DRAFTERS[name]) as runtime:
            request = Generate(prompt=PROMPT, sampling=GREEDY, max_tokens=TOKENS, stop=(stop,))
            seen = await Seen().read(runtime.generate(request))
        assert seen.text == expected
        assert seen.ended is not None
        assert seen.ended.reason == "stop"


async def test_going_on_behind_output_made_before(gateway: Gateway) -> None:
    request = Generate(prompt=PROMPT, sampling=SAMPLED, max_tokens=TOKENS)
    alone = await reference(gateway, request)
    for held, name in itertools.product((1, 17, TOKENS - 1), ("60%", "ngram")):
        before = tuple(alone.tokens[:held])
        async with device(gateway, DRAFTERS[name]) as runtime:
            seen = Seen(tokens=list(before))
            await seen.read(
                runtime.generate(Generate(prompt=PROMPT, sampling=SAMPLED, max_tokens=TOKENS, committed=before))
            )
        assert seen.tokens == alone.tokens
        assert alone.text.endswith(seen.text)


def _with(request: Generate, policy: str) -> Generate:
    return Generate(
        prompt=request.prompt,
        sampling=request.sampling,
        max_tokens=request.max_tokens,
        policy=policy,  # type: ignore[arg-type]
    )
