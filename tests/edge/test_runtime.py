"""The draft-ahead loop where drafter and commits meet, both played by hand. tests/e2e/test_hybrid.py has the whole."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from edge.budget import Allowed, Budget
from edge.connection import Connection
from edge.drafters.base import Proposal
from edge.drafters.ngram import NgramDrafter
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.events import Committed, Drafted, Ended, Event, RolledBack
from edge.power import Power
from edge.protocol import errors
from edge.protocol.frames import Cancel, Commit, Draft, Message, Open, Opened, Sampling, Window
from edge.runtime import Generate, Runtime
from edge.script import Script, ScriptVocabulary
from tests.edge.peer import MODEL, Peer, finish, opened, playing
from tests.edge.stepped import SteppedDrafter, running

REQUEST = Generate(prompt=(1,), max_tokens=1000)


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_a_proposal_in_the_making_is_thrown_away_when_a_commit_changes_its_context() -> None:
    drafter = SteppedDrafter()
    drafts: list[Draft] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0))
        await drafter.asks()
        await peer.send(Commit(0, 0, (50, 51)))  # the drafter is at position 0: overtaken
        await committed.wait()
        drafter.answers.put(40)  # stale
        await drafter.asks()
        assert drafter.output == [50, 51]
        drafter.answers.put(42)
        drafts.append(await peer.take(Draft))
        await peer.send(Commit(0, 2, (42,), drafted=1))
        await peer.send(finish(0, 3))
        drafter.answers.put(None)
        await peer.gone()

    committed = asyncio.Event()
    seen: list[Event] = []
    async with running(play, drafter, REQUEST) as events:
        async for event in events:
            seen.append(event)
            committed.set()
    assert drafts == [Draft(0, 2, 2, (42,))]
    assert [e.tokens for e in seen if isinstance(e, Drafted)] == [(42,)]
    (ended,) = [e for e in seen if isinstance(e, Ended)]
    assert ended.measures.wasted == 1
    assert drafter.closed.is_set()


async def test_commits_that_agree_leave_the_drafter_alone() -> None:
    drafter = SteppedDrafter()

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0))
        for token in (10, 11, 12):
            await drafter.asks()
            drafter.answers.put(token)
            await peer.take(Draft)
        await drafter.asks()
        await peer.send(Commit(0, 0, (10, 11), drafted=2))
        await committed.wait()
        drafter.answers.put(13)  # made before the commit came: it holds
        assert (await peer.take(Draft)).tokens == (13,)
        assert drafter.lengths[:4] == [0, 1, 2, 3]
        await peer.send(Commit(0, 2, (12, 13), drafted=2), finish(0, 4))
        drafter.answers.put(None)
        await peer.gone()

    committed = asyncio.Event()
    origins: list[str] = []
    async with running(play, drafter, REQUEST) as events:
        async for event in events:
            assert not isinstance(event, RolledBack)
            if isinstance(event, Committed):
                origins += [token.origin for token in event.tokens]
                committed.set()
    assert origins == ["accepted"] * 4


async def test_several_commits_while_the_drafter_is_busy_are_mended_at_once() -> None:
    drafter = SteppedDrafter()

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0))
        for token in (10, 11):
            await drafter.asks()
            drafter.answers.put(token)
            await peer.take(Draft)
        await drafter.asks()
        await peer.send(Commit(0, 0, (10, 99), drafted=1), Commit(0, 2, (98,)), Commit(0, 3, (97,)))
        await committed.wait()
        drafter.answers.put(12)
        await drafter.asks()
        assert drafter.output == [10, 99, 98, 97]
        await peer.send(finish(0, 4))
        drafter.answers.put(None)
        await peer.gone()

    committed = asyncio.Event()
    seen: list[Event] = []
    async with running(play, drafter, REQUEST) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, Committed) and event.start == 3:
                committed.set()
    kinds = [token.origin for e in seen if isinstance(e, Committed) for token in e.tokens]
    assert kinds == ["accepted", "corrected", "cloud", "cloud"]
    assert [(e.start, e.tokens) for e in seen if isinstance(e, RolledBack)] == [(1, (11,))]


async def test_a_drafter_that_fails_costs_the_stream_nothing(caplog: pytest.LogCaptureFixture) -> None:
    drafter = SteppedDrafter()

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0))
        await drafter.asks()
        drafter.answers.put(RuntimeError("out of memory"))
        while "out of memory" not in caplog.text:  # noqa: ASYNC110 (the log tells nobody)
            await asyncio.sleep(0)
        await peer.send(Commit(0, 0, (5,)), Commit(0, 1, (6,)), finish(0, 2))
        await peer.gone()

    async with running(play, drafter, REQUEST) as events:
        seen = await all_of(events)
    assert isinstance(seen[-1], Ended)
    assert seen[-1].measures.drafter_failed


@pytest.mark.parametrize(("max_tokens", "expected"), [(50, 5), (5, 5), (2, 2)])
async def test_drafting_stops_behind_an_end_token_and_at_max_tokens(max_tokens: int, expected: int) -> None:
    script = Script(ScriptVocabulary(), length=5)
    drafter = ScriptedDrafter(script, right_with(1.0))
    drafter.fingerprint = MODEL.fingerprint
    prompt = tuple(script.vocabulary.encode("x"))

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        drafted = 0
        while drafted < expected:
            drafted += len((await peer.take(Draft)).tokens)
        await peer.send(opened(0), Commit(0, 0, tuple(script.greedy(prompt, expected)), drafted=expected))
        await peer.send(finish(0, expected))
        await peer.gone()

    request = Generate(prompt=prompt, sampling=Sampling(temperature=0), max_tokens=max_tokens)
    async with running(play, drafter, request) as events:
        seen = await all_of(events)
    assert sum(len(event.tokens) for event in seen if isinstance(event, Drafted)) == expected
    assert not any(isinstance(event, RolledBack) for event in seen)


async def test_drafting_stops_at_the_clouds_window() -> None:
    drafter = SteppedDrafter()

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0, window=2), Commit(0, 0, (5,)))
        for token in (0, 10, 11):  # the first is stale
            await drafter.asks()
            await committed.wait()
            drafter.answers.put(token)
        await peer.take(Draft)
        await peer.take(Draft)
        await peer.send(Window(0, 3))
        await drafter.asks()
        drafter.answers.put(12)
        assert await peer.take(Draft) == Draft(0, 2, 3, (12,))
        await peer.send(finish(0, 1))
        await peer.gone()

    committed = asyncio.Event()
    async with running(play, drafter, REQUEST) as events:
        async for event in events:
            assert not isinstance(event, Drafted) or event.start + len(event.tokens) <= 4
            if isinstance(event, Committed):
                committed.set()


class WrongDrafter(SteppedDrafter):
    """Always has something to propose, and is never right."""

    def propose(self) -> Proposal | None:
        self.output.append(499)
        return Proposal(499, 0.5)


async def test_a_reader_that_does_not_read_stops_the_drafting_and_not_the_stream() -> None:
    total = 600

    async def play(peer: Peer) -> None:
        await peer.greet()
        first = await peer.take(Open)
        await peer.send(opened(first.stream), Commit(first.stream, 0, (0,)))
        while not isinstance(second := await peer.receive(), Open):
            pass
        drafting = True
        for position in range(1, total):
            await peer.send(Commit(first.stream, position, (position % 7,)))
            if drafting:  # until no draft comes any more
                try:
                    async with asyncio.timeout(0.5):
                        await peer.take(Draft)
                except TimeoutError:
                    drafting = False
        await peer.send(finish(first.stream, total))
        await peer.send(opened(second.stream), finish(second.stream, 0))
        await peer.gone()

    async with (
        playing(play) as url,
        Connection(url, key="k") as connection,
        Runtime(connection, WrongDrafter()) as runtime,
        aclosing(runtime.generate(REQUEST)) as events,
    ):
        seen = [await anext(events)]
        # The second stream ends behind all frames of the first.
        await all_of(runtime.generate(Generate(prompt=(1,), max_tokens=100, draft=False)))
        seen += await all_of(events)
    assert len(seen) < 300
    output = [token.id for event in seen if isinstance(event, Committed) for token in event.tokens]
    assert output == [position % 7 for position in range(total)]


async def test_leaving_early_cancels_on_the_cloud_and_closes_the_drafter() -> None:
    drafter = SteppedDrafter()
    cancelled = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0), Commit(0, 0, (5,)))
        await peer.take(Cancel)
        cancelled.set()
        await peer.gone()

    async with running(play, drafter, REQUEST) as events:
        await anext(events)
        drafter.answers.put(None)
    assert drafter.closed.is_set()
    assert cancelled.is_set()


async def test_what_is_sent_up_without_a_tokenizer_and_with_one() -> None:
    opens: list[Open] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        for own in range(2):
            request = await peer.take(Open)
            opens.append(request)
            answer = Opened(own, "t", 4, 7, 0, 1, 0, 8, prompt=(3, 4, 3, 4) if request.text else ())
            await peer.send(answer, Commit(own, 0, (3,), text="c"), Commit(own, 1, (), text="!"), finish(own, 1))
        await peer.gone()

    vocabulary = ScriptVocabulary()
    messages = (Message("user", "hi"),)
    async with playing(play) as url, Connection(url, key="k") as connection:
        async with Runtime(connection, None, draw_seed=lambda: 7) as bare:
            seen = await all_of(bare.generate(Generate(messages=messages)))
        async with Runtime(connection, None, vocabulary=_renamed(vocabulary), draw_seed=lambda: 7) as equipped:
            await all_of(equipped.generate(Generate(messages=messages)))
    assert (opens[0].messages, opens[0].prompt, opens[0].text) == (messages, (), True)
    assert "".join(e.text for e in seen if isinstance(e, Committed | Ended)) == "c!"
    assert (opens[1].messages, opens[1].prompt, opens[1].text) == ((), tuple(vocabulary.render(messages)), False)
    assert opens[0].sampling.seed == 7, "drawn here, so that drafting need not wait for `opened`"


async def test_requests_that_cannot_be_are_refused_before_anything_leaves() -> None:
    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.gone()

    script = Script(ScriptVocabulary())
    async with playing(play) as url, Connection(url, key="k") as connection:
        async with Runtime(connection, NgramDrafter()) as runtime:
            with pytest.raises(errors.InvalidRequest):
                await all_of(runtime.generate(Generate()))
            with pytest.raises(errors.UnknownModel, match="other"):
                await all_of(runtime.generate(Generate(prompt=(1,), model="other")))
        async with Runtime(connection, ScriptedDrafter(script, right_with(1.0))) as runtime:
            with pytest.raises(errors.VocabularyMismatch):
                await all_of(runtime.generate(Generate(prompt=(1,))))


async def test_figures_by_the_runtimes_clock() -> None:
    now = [100.0]

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0))
        for at, frame in ((101.0, Commit(0, 0, (1,))), (101.5, Commit(0, 1, (2, 3))), (104.5, Commit(0, 3, (4,)))):
            now[0] = at
            await peer.send(frame)
            await turns.get()
        await peer.send(finish(0, 4))
        await peer.gone()

    turns: asyncio.Queue[None] = asyncio.Queue(maxsize=8)
    async with (
        playing(play) as url,
        Connection(url, key="k") as connection,
        Runtime(connection, None, clock=lambda: now[0]) as runtime,
    ):
        async for event in runtime.generate(REQUEST):
            if isinstance(event, Committed):
                turns.put_nowait(None)
    assert isinstance(event, Ended)
    assert event.figures.ttft_s == 1.0
    assert event.figures.itl_s == pytest.approx(3.5 / 3)
    assert event.measures.gaps_s == (0.5, 3.0)
    assert event.figures.largest_gap_s == 3.0
    assert event.figures.acceptance_rate is None


def _renamed(vocabulary: ScriptVocabulary) -> ScriptVocabulary:
    vocabulary.fingerprint = MODEL.fingerprint
    return vocabulary


async def test_a_device_that_may_not_draft_still_gets_its_answer() -> None:
    drafter = SteppedDrafter()

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0), Commit(0, 0, (5, 6)), finish(0, 2))
        await peer.gone()

    budget = Budget(Allowed(battery_rate=0.0), lambda: Power(on_battery=True), time.monotonic)
    async with (
        playing(play) as url,
        Connection(url, key="k") as connection,
        Runtime(connection, drafter, budget=budget) as runtime,
    ):
        events = await all_of(runtime.generate(REQUEST))
    assert [token.id for event in events if isinstance(event, Committed) for token in event.tokens] == [5, 6]
    assert drafter.lengths == [], "it was never asked for a draft"


async def test_drafting_pauses_where_the_next_token_would_hardly_survive_and_goes_on_with_a_commit() -> None:
    drafter = SteppedDrafter()
    for token in (*range(40, 50), None):
        drafter.answers.put(token)
    came: list[int] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0))
        while len(came) < 4:
            came.extend((await peer.take(Draft)).tokens)
        assert drafter.answers.qsize() == 7  # it says one half of each: behind four, less than a tenth is left
        await peer.send(Commit(0, 0, (40, 41, 42), drafted=3))
        while len(came) < 6:
            came.extend((await peer.take(Draft)).tokens)
        await peer.send(finish(0, 3))

    async with running(play, drafter, REQUEST) as events:
        await all_of(events)
    assert came[:6] == [40, 41, 42, 43, 44, 45]


async def test_without_a_least_survival_drafting_goes_on_to_the_window() -> None:
    drafter = SteppedDrafter()
    for token in (*range(40, 60), None):
        drafter.answers.put(token)
    came: list[int] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.take(Open)
        await peer.send(opened(0, window=16))
        while len(came) < 12:
            came.extend((await peer.take(Draft)).tokens)
        await peer.send(finish(0, 0))

    async with running(play, drafter, Generate(prompt=(1,), max_tokens=1000, least_survival=0.0)) as events:
        await all_of(events)
    assert came[:12] == list(range(40, 52))


async def test_what_one_answer_taught_of_the_drafter_serves_the_next() -> None:
    drafter = SteppedDrafter()
    depths: list[int] = []
    """How far each answer was drafted ahead before its first commit."""

    async def play(peer: Peer) -> None:
        await peer.greet()
        for stream in (0, 1):
            await peer.take(Open)
            await peer.send(opened(stream, window=16))
            head = drafted = 0
            while head < 24:
                while drafted - head < 4:
                    drafted += len((await peer.take(Draft)).tokens)
                if head == 0:
                    await asyncio.sleep(0.05)  # for those that come behind
                    depths.append(len(drafter.lengths))
                await peer.send(Commit(stream, head, tuple(range(head, head + 4)), drafted=4))
                head += 4
            drafter.lengths.clear()
            await peer.send(finish(stream, head))

    async with (
        playing(play) as url,
        Connection(url, key="k") as connection,
        Runtime(connection, drafter) as runtime,
    ):
        for _ in range(2):
            for token in range(24):
                drafter.answers.put(token)
            drafter.answers.put(None)
            await all_of(runtime.generate(REQUEST))
            assert drafter.closed.wait(timeout=20)
            drafter.closed.clear()
            drafter.answers = queue.Queue(maxsize=64)
    assert depths[0] == 4, "it says one half of each, and nothing is known yet"
    assert depths[1] > 8, "they all agreed"
