"""The engine whole: event loop, worker thread, scheduler and sampling rule, on the scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine.base import Commit, Refused
from app.engine.generation import PARK_AHEAD, Generation
from edge.protocol.frames import Policy, Sampling
from edge.script import Script, ScriptVocabulary
from tests.app.engine.gate import FOREVER_S, gated, running
from tests.app.engine.requests import GREEDY, PROMPT, SEEDED, read, read_drafting, request, script


def wrong(tokens: list[int]) -> list[int]:
    return [token ^ 1 for token in tokens]


def partly(tokens: list[int]) -> list[int]:
    return [token ^ (i % 3 == 2) for i, token in enumerate(tokens)]


def late(tokens: list[int]) -> list[int]:
    """What was said four positions before: as if each draft came for a place that is long past."""
    return [0, 0, 0, 0, *tokens]


Drafts = Callable[[list[int]], list[int]]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED, Sampling(seed=3, frequency_penalty=0.5)])
@pytest.mark.parametrize("policy", ["eager", "hold", "auto", "sync"])
@pytest.mark.parametrize("drafts", [list, wrong, partly, late])
async def test_drafts_of_any_kind_leave_the_output_as_it_is(sampling: Sampling, policy: Policy, drafts: Drafts) -> None:
    async with running() as engine:
        plain = await read(engine.submit(request(sampling=sampling)))
        generation = engine.submit(request(sampling=sampling, policy=policy, hold_s=0.001))
        assert await read_drafting(generation, drafts(plain)) == plain
        assert generation.usage().completion == len(plain) == 40


async def test_right_drafts_save_steps_and_are_counted() -> None:
    async with running() as engine:
        plain = engine.submit(request())
        tokens = await read(plain)
        assert plain.usage().steps == 40
        assert plain.usage().drafted == 0
        helped = engine.submit(request(policy="hold", hold_s=FOREVER_S, max_tokens=41))
        helped.offer(0, 0, tokens)
        assert await read(helped) == [*tokens, *engine.script.greedy(PROMPT, 41)[40:]]
        usage = helped.usage()
        # The prompt's step gives a token, four steps check 8 drafts and say a ninth themselves, the last checks 3.
        assert usage.steps == 1 + 4 + 1
        assert (usage.drafted, usage.verified, usage.accepted, usage.matched) == (40, 35, 35, 1 + 4)


async def test_streams_run_together_and_do_not_mix() -> None:
    prompts = [(i, i + 1, i + 2) for i in range(20)]
    async with running(streams=4) as engine:
        generations = [engine.submit(request(prompt, max_tokens=15)) for prompt in prompts]
        assert await asyncio.gather(*map(read, generations)) == [engine.script.greedy(p, 15) for p in prompts]


async def test_hold_waits_for_a_draft_while_others_run() -> None:
    async with running() as engine:
        expected = engine.script.greedy(PROMPT, 40)
        holding = engine.submit(request(policy="hold", hold_s=FOREVER_S))
        events = holding.events()
        assert [event.tokens async for event in _first(events) if isinstance(event, Commit)] == [(expected[0],)]
        await read(engine.submit(request((9, 9))))
        assert len(holding.ledger) == 1
        holding.offer(1, 1, expected[1:4])
        assert await anext(events) == Commit(1, tuple(expected[1:5]), 3, *_times(holding))


async def _first(events: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield await anext(events)


def _times(generation: Generation) -> tuple[float, float]:
    step_s, queue_s = generation._step_s[-1], generation._queue_s[-1]
    assert step_s > 0
    assert queue_s > 0
    return step_s, queue_s


async def test_hold_gives_up_without_drafts() -> None:
    async with running() as engine:
        assert len(await read(engine.submit(request(policy="hold", hold_s=0.001)))) == 40


async def test_a_hole_is_refused_once_and_a_higher_epoch_is_taken() -> None:
    async with gated() as (engine, gate):
        expected = engine.script.greedy(PROMPT, 40)
        generation = engine.submit(request())
        events = generation.events()
        await gate.entered.wait()
        generation.offer(0, 5, expected[5:7])
        generation.offer(0, 7, expected[7:9])
        gate.step()
        first = [await anext(events), await anext(events)]  # in either order: they come from two looks at the mail
        assert Refused(1) in first
        assert [event.tokens for event in first if isinstance(event, Commit)] == [(expected[0],)]
        generation.offer(1, len(generation.ledger), expected[len(generation.ledger) :])
        gate.open()
        assert expected[1:] == [token async for event in events if isinstance(event, Commit) for token in event.tokens]
        assert generation.usage().accepted > 0


async def test_an_id_that_is_not_in_the_vocabulary_is_refused_and_the_stream_goes_on() -> None:
    async with running() as engine:
        generation = engine.submit(request())
        generation.offer(0, 0, [10**6])
        assert len(await read(generation)) == 40
        assert engine.failure() is None


async def test_cancel_takes_effect_within_a_step() -> None:
    async with gated() as (engine, gate):
        generation, other = engine.submit(request()), engine.submit(request((7, 7)))
        reading = asyncio.create_task(read(generation))
        await gate.entered.wait()
        generation.cancel()
        gate.open()
        tokens = await reading
        assert generation.finished is not None
        assert (generation.finished.reason, generation.finished.length) == ("cancelled", len(tokens))
        assert len(tokens) <= 1
        assert len(await read(other)) == 40


async def test_a_queued_stream_can_be_cancelled() -> None:
    async with gated(streams=1) as (engine, gate):
        first, queued = engine.submit(request()), engine.submit(request())
        await gate.entered.wait()
        queued.cancel()
        gate.step()
        assert await read(queued) == []
        assert queued.finished is not None
        assert queued.finished.reason == "cancelled"
        first.cancel()


async def test_a_stream_that_nobody_reads_parks_and_goes_on_when_somebody_does() -> None:
    async with running() as engine:
        generation = engine.submit(request(max_tokens=200, policy="hold", hold_s=FOREVER_S))
        await anext(generation.events())
        generation.detach()
        while len(generation.ledger) < 1 + PARK_AHEAD:
            await generation._change()
        await read(engine.submit(request((8, 8))))
        assert len(generation.ledger) == 1 + PARK_AHEAD
        assert engine.load().running == 1
        generation.attach()
        generation.offer(1, 1 + PARK_AHEAD, engine.script.greedy(PROMPT, 200)[1 + PARK_AHEAD :])
        assert await read(generation) == engine.script.greedy(PROMPT, 200)


async def test_streams_that_nobody_reads_keep_nobody_out_and_lose_nothing() -> None:
    async with running(streams=2) as engine:
        dropped = [engine.submit(request((i, 1), max_tokens=100)) for i in range(2)]
        for generation in dropped:
            generation.detach()
            while len(generation.ledger) < PARK_AHEAD:
                await generation._change()
        assert len(await read(engine.submit(request()))) == 40
        for i, generation in enumerate(dropped):
            generation.attach()
            assert await read(generation) == engine.script.greedy((i, 1), 100)


async def test_a_request_whose_sampling_leaves_no_token_fails_alone() -> None:
    async with running(script=_SilentScript(ScriptVocabulary())) as engine:
        broken, sound = engine.submit(request((0, 1))), engine.submit(request((1, 1)))
        assert await read(broken) == []
        assert broken.finished is not None
        assert (broken.finished.reason, broken.finished.error) == ("error", "invalid_request")
        assert len(await read(sound)) == 40
        assert engine.failure() is None


class _SilentScript(Script):
    """Has nothing to say to a prompt that begins with 0."""

    def key(self, prompt: Sequence[int]) -> int:
        return super().key(prompt) if prompt[0] else 0

    def logits(self, prompt_key: int, position: int, previous: int) -> NDArray[np.float32]:
        logits = super().logits(prompt_key, position, previous)
        return logits if prompt_key else np.full_like(logits, np.nan)


async def test_carried_output_is_gone_on_with_as_if_it_had_been_made_here() -> None:
    async with running() as engine:
        for sampling in (GREEDY, SEEDED):
            whole = await read(engine.submit(request(sampling=sampling)))
            moved = engine.submit(request(sampling=sampling, committed=tuple(whole[:17])))
            assert await read(moved, 17) == whole[17:]
            assert moved.usage().completion == 40
            assert moved.usage().steps == 23


async def test_carried_output_that_was_complete_ends_at_once() -> None:
    async with running(script=script(length=10)) as engine:
        whole = await read(engine.submit(request()))
        assert len(whole) == 10
        moved = engine.submit(request(committed=tuple(whole)))
        assert await read(moved, 10) == []
        assert moved.finished is not None
        assert moved.finished.reason == "stop"


async def test_the_end_token_within_an_accepted_run_ends_the_stream() -> None:
    async with running(script=script(length=10)) as engine:
        expected = engine.script.greedy(PROMPT, 40)
        generation = engine.submit(request())
        assert await read_drafting(generation, [*expected, 1, 2, 3], block=8) == expected
        assert generation.finished is not None
        assert (generation.finished.reason, generation.finished.length) == ("stop", 10)


async def test_a_stop_string_over_token_borders_ends_it_with_or_without_drafts() -> None:
    async with running() as engine:
        tokens = engine.script.greedy(PROMPT, 40)
        pieces = [engine.vocabulary.piece(token) for token in tokens]
        stop = (pieces[11][-1:] + pieces[12] + pieces[13][:1]).decode()
        at = b"".join(pieces).index(stop.encode())
        for drafts in ([], tokens, wrong(tokens)):
            generation = engine.submit(request(stop=(stop, "never said")))
            assert await read_drafting(generation, drafts) == tokens[: _tokens_until(pieces, at + len(stop))]
            assert generation.finished is not None
            assert (generation.finished.reason, generation.finished.kept_bytes) == ("stop", at)


def _tokens_until(pieces: list[bytes], length: int) -> int:
    """How many tokens it takes to say so many bytes."""
    return next(i for i in range(len(pieces) + 1) if len(b"".join(pieces[:i])) >= length)


async def test_a_full_context_is_a_clean_end() -> None:
    async with running(context=32) as engine:
        generation = engine.submit(request(max_tokens=1000))
        expected = engine.script.greedy(PROMPT, 27)
        assert await read_drafting(generation, engine.script.greedy(PROMPT, 60), block=8) == expected
        assert generation.finished is not None
        assert (generation.finished.reason, generation.finished.length) == ("length", 27)
