from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from app.engine.base import Commit, Event, Finished, Refused, Widened
from app.engine.generation import PARK_AHEAD, Generation, Progress
from edge.protocol.frames import TokenLogprob, Usage
from tests.app.engine.requests import request


class Sink:
    """What a generation asked of its worker."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def offer(self, generation: Generation, epoch: int, start: int, tokens: Sequence[int]) -> None:
        self.calls.append(("offer", epoch, start, tuple(tokens)))

    def cancel(self, generation: Generation) -> None:
        self.calls.append(("cancel",))

    def park(self, generation: Generation, at: int | None) -> None:
        self.calls.append(("park", at))


def generation_of(committed: tuple[int, ...] = ()) -> tuple[Generation, Sink]:
    sink = Sink()
    return Generation(request(committed=committed), sink, window=8), sink


def finish(generation: Generation) -> None:
    generation.apply(Progress(finished=Finished(len(generation.ledger), "length", None, Usage())))


async def collect(generation: Generation, start: int = 0) -> list[Event]:
    return [event async for event in generation.events(start)]


async def test_a_slow_reader_gets_one_commit_for_all_that_piled_up() -> None:
    generation, _ = generation_of()
    generation.apply(Progress((1, 2, 3), drafted=2, step_s=0.5, queue_s=0.2))
    generation.apply(Progress((4,), drafted=0, step_s=0.7))
    finish(generation)
    assert await collect(generation) == [Commit(0, (1, 2, 3, 4), 2, 0.7, 0.2)]


@pytest.mark.parametrize(("start", "drafted"), [(0, 4), (1, 3), (2, 2), (3, 2), (4, 1), (5, 0), (6, 0)])
async def test_from_within_a_step_only_its_rest_counts_as_drafted(start: int, drafted: int) -> None:
    generation, _ = generation_of()
    generation.apply(Progress((1, 2, 3), drafted=2))
    generation.apply(Progress((4, 5, 6, 7), drafted=2))
    finish(generation)
    tokens = (1, 2, 3, 4, 5, 6, 7)[start:]
    assert await collect(generation, start) == [Commit(start, tokens, drafted, 0.0, 0.0)]


async def test_output_that_was_carried_here_is_given_out_like_any_other() -> None:
    generation, _ = generation_of(committed=(7, 8))
    generation.apply(Progress((9, 10), drafted=1))
    finish(generation)
    assert await collect(generation) == [Commit(0, (7, 8, 9, 10), 1, 0.0, 0.0)]
    assert await collect(generation, 3) == [Commit(3, (10,), 0, 0.0, 0.0)]


async def test_logprobs_follow_their_tokens() -> None:
    generation, _ = generation_of(committed=(7,))
    rows = (TokenLogprob(8, -0.5), TokenLogprob(9, -0.1))
    generation.apply(Progress((8,), logprobs=rows[:1]))
    generation.apply(Progress((9,), logprobs=rows[1:]))
    finish(generation)
    assert [event.logprobs for event in await collect(generation, 1) if isinstance(event, Commit)] == [rows]
    assert [event.logprobs for event in await collect(generation, 2) if isinstance(event, Commit)] == [rows[1:]]


async def test_readers_are_independent_and_all_see_everything() -> None:
    generation, _ = generation_of()
    readers = [asyncio.create_task(collect(generation, start)) for start in (0, 0, 2)]
    await asyncio.sleep(0)
    for token in range(5):
        generation.apply(Progress((token,)))
        await asyncio.sleep(0)
    finish(generation)
    for reader, start in zip(readers, (0, 0, 2), strict=True):
        commits = [event for event in await reader if isinstance(event, Commit)]
        assert [token for commit in commits for token in commit.tokens] == list(range(start, 5))
        assert all(b.start == a.start + len(a.tokens) for a, b in pairwise(commits))


async def test_of_several_refusals_the_last_is_told_and_a_new_reader_hears_of_none() -> None:
    generation, _ = generation_of()
    reader = asyncio.create_task(collect(generation))
    await asyncio.sleep(0)
    generation.apply(Progress(refused=1))
    generation.apply(Progress(refused=4))
    await asyncio.sleep(0)
    finish(generation)
    assert await reader == [Refused(4)]
    assert await collect(generation) == []


async def test_a_new_window_is_told_once() -> None:
    generation, _ = generation_of()
    reader = asyncio.create_task(collect(generation))
    await asyncio.sleep(0)
    generation.widen(8)
    generation.widen(3)
    await asyncio.sleep(0)
    finish(generation)
    assert await reader == [Widened(3)]
    assert generation.window == 3


async def test_a_reader_that_goes_away_leaves_nothing_behind() -> None:
    generation, _ = generation_of()
    reader = asyncio.create_task(collect(generation))
    await asyncio.sleep(0)
    assert len(generation._readers) == 1
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert not generation._readers


async def test_the_lowest_epoch_is_above_all_that_were_offered() -> None:
    generation, sink = generation_of()
    assert generation.lowest_epoch == 0
    generation.offer(3, 0, [1, 2])
    generation.offer(1, 0, [1])
    assert generation.lowest_epoch == 4
    assert sink.calls == [("offer", 3, 0, (1, 2)), ("offer", 1, 0, (1,))]


async def test_nobody_reading_it_parks_a_bounded_way_past_what_was_delivered() -> None:
    generation, sink = generation_of(committed=(1, 2))
    generation.apply(Progress((3, 4, 5)))
    async for _ in generation.events(2):
        break
    generation.apply(Progress((6, 7)))
    generation.detach()
    generation.attach()
    assert sink.calls == [("park", 5 + PARK_AHEAD), ("park", None)]


async def test_after_the_end_nothing_is_asked_or_changed_any_more() -> None:
    generation, sink = generation_of()
    finish(generation)
    generation.offer(1, 0, [1])
    generation.cancel()
    generation.apply(Progress((1,)))
    assert sink.calls == []
    assert len(generation.ledger) == 0
