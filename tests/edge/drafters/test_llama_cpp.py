"""The llama.cpp drafter on the embedded model: what it proposes depends on the tokens before, and on nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.drafters.base import Continuation
from edge.models import default_directory, pair
from edge.protocol.frames import Message, Sampling
from edge.protocol.sampling import Sampler
from tests.edge.drafters.contract import Operation, Tie, check, check_cancelled, check_long, operations, samplings

pytest.importorskip("llama_cpp")
from edge.drafters.llama_cpp import LlamaCppDrafter, probability

pytestmark = pytest.mark.model

GREEDY = Sampling(temperature=0.0)
SEEDED = Sampling(temperature=0.8, top_p=0.95, seed=7)
NOISE = 0.15
"""How far a logit moves, at most, when it is computed in a batch of another shape."""
QUESTION = [Message("user", "Name three rivers of Europe and one thing about each.")]


@pytest.fixture(scope="module")
def model() -> Path:
    return pair(default_directory()).draft


@pytest.fixture(scope="module")
def drafter(model: Path) -> Iterator[LlamaCppDrafter]:
    drafter = LlamaCppDrafter(model, streams=2, context=256)
    yield drafter
    drafter.close()


def take(continuation: Continuation, count: int) -> list[int]:
    proposals = [continuation.propose() for _ in range(count)]
    return [p.token for p in proposals if p is not None]


def prompt_of(drafter: LlamaCppDrafter) -> list[int]:
    return drafter.vocabulary.render(QUESTION)


def test_it_answers_the_question(drafter: LlamaCppDrafter) -> None:
    continuation = drafter.begin(prompt_of(drafter), GREEDY)
    text = b"".join(drafter.vocabulary.piece(t) for t in take(continuation, 24)).decode()
    continuation.close()
    assert "river" in text.lower()


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_a_rollback_leaves_no_trace(drafter: LlamaCppDrafter, sampling: Sampling) -> None:
    prompt = prompt_of(drafter)
    continuation = drafter.begin(prompt, sampling)
    drafted = take(continuation, 8)
    correction = drafter.vocabulary.encode(" the Danube, which")
    continuation.rollback(3)
    continuation.feed(correction)
    after = take(continuation, 8)
    continuation.close()
    fresh = drafter.begin([*prompt], sampling, committed=[*drafted[:3], *correction])
    expected = take(fresh, 8)
    fresh.close()
    assert len(after) == 8
    assert after == expected


def test_logits_after_a_rollback_are_those_of_a_fresh_context(model: Path, drafter: LlamaCppDrafter) -> None:
    prompt = prompt_of(drafter)
    continuation = drafter.begin(prompt, GREEDY)
    drafted = take(continuation, 8)
    continuation.close()
    kept = [*prompt, *drafted[:3], *drafter.vocabulary.encode(" Danube")]
    seat = drafter.take_seat(kept)
    assert seat is not None
    rolled_back = drafter.logits(seat, kept)
    assert rolled_back is not None
    rolled_back = rolled_back.copy()
    seat.taken = False
    other = LlamaCppDrafter(model, streams=1, context=256)
    try:
        seat = other.take_seat(kept)
        assert seat is not None
        fresh = other.logits(seat, kept)
        assert fresh is not None
        # Batches of other shapes give slightly other sums; a wrong cache gives altogether other logits.
        np.testing.assert_allclose(rolled_back, fresh, atol=NOISE)
        shorter = other.logits(seat, kept[:-1])
        assert shorter is not None
        assert np.abs(rolled_back - shorter).max() > 1.0
    finally:
        other.close()


def test_coupled_proposes_what_the_targets_rule_would_pick(drafter: LlamaCppDrafter) -> None:
    prompt = prompt_of(drafter)
    continuation = drafter.begin(prompt, SEEDED)
    coupled = take(continuation, 12)
    continuation.close()
    rule = Sampler(SEEDED, drafter.vocabulary.size, prompt)
    seat = drafter.take_seat(prompt)
    assert seat is not None
    tokens = list(prompt)
    for position in range(12):
        logits = drafter.logits(seat, tokens)
        assert logits is not None
        tokens.append(rule.pick(logits, position))
    seat.taken = False
    assert tokens[len(prompt) :] == coupled
    continuation = drafter.begin(prompt, SEEDED, coupled=False)
    assert take(continuation, 12) != coupled
    continuation.close()
    assert SEEDED.temperature > 0


def test_streams_do_not_see_each_other(drafter: LlamaCppDrafter) -> None:
    prompts = [prompt_of(drafter), drafter.vocabulary.encode("Once upon a time, there was")]
    alone = []
    for prompt in prompts:
        continuation = drafter.begin(prompt, GREEDY)
        alone.append(take(continuation, 6))
        continuation.close()
    both = [drafter.begin(prompt, GREEDY) for prompt in prompts]
    mixed: list[list[int]] = [[], []]
    for _ in range(6):
        for tokens, continuation in zip(mixed, both, strict=True):
            tokens += take(continuation, 1)
    for continuation in both:
        continuation.close()
    assert mixed == alone


def test_a_stream_too_many_gets_no_drafts_until_another_ends(drafter: LlamaCppDrafter) -> None:
    prompt = prompt_of(drafter)
    first, second, third = (drafter.begin(prompt, GREEDY) for _ in range(3))
    assert first.propose() is not None
    assert second.propose() is not None
    assert third.propose() is None
    first.close()
    first.close()
    assert third.propose() is not None
    for continuation in (second, third):
        continuation.close()
    assert second.propose() is None, "closed"


def test_a_full_context_ends_drafting_and_nothing_else(model: Path) -> None:
    drafter = LlamaCppDrafter(model, streams=1, context=32)
    prompt = drafter.vocabulary.encode("one two three four five six seven eight nine ten " * 3)[:26]
    continuation = drafter.begin(prompt, GREEDY)
    proposed = take(continuation, 20)
    assert 0 < len(proposed) <= 7
    continuation.feed([1] * 50)
    assert continuation.propose() is None
    continuation.rollback(2)
    assert continuation.propose() is not None, "a rollback makes room again"
    continuation.close()
    drafter.close()


def test_nothing_is_proposed_behind_an_end(drafter: LlamaCppDrafter) -> None:
    continuation = drafter.begin(prompt_of(drafter), GREEDY)
    continuation.feed([min(drafter.vocabulary.ends)])
    assert continuation.propose() is None
    continuation.rollback(0)
    assert continuation.propose() is not None
    continuation.close()


def test_confidence_is_the_softmax() -> None:
    logits = np.array([1.0, 3.0, 2.0, -50.0], np.float32)
    shares = np.exp(logits.astype(np.float64))
    shares /= shares.sum()
    assert [probability(logits, t) for t in range(4)] == pytest.approx(list(shares))


@pytest.fixture(scope="module")
def roomy(model: Path) -> Iterator[LlamaCppDrafter]:
    drafter = LlamaCppDrafter(model, streams=5, context=256)
    yield drafter
    drafter.close()


@settings(max_examples=8, derandomize=True, deadline=None)
@given(sampling=samplings(), history=operations(st.integers(200, 20_000), most=6))
def test_contract(roomy: LlamaCppDrafter, sampling: Sampling, history: list[Operation]) -> None:
    prompt = roomy.vocabulary.encode("The three largest rivers of Europe are")
    check(roomy, prompt, sampling, history, tie(roomy, prompt, sampling))


def tie(drafter: LlamaCppDrafter, prompt: Sequence[int], sampling: Sampling) -> Tie:
    """Logits depend a little on how many tokens are computed at once: where that decides, either token will do."""

    def parted(output: Sequence[int], one: int, other: int) -> bool:
        seat = drafter.take_seat(())
        assert seat is not None
        row = drafter.logits(seat, [*prompt, *output])
        seat.taken = False
        assert row is not None
        sampler = Sampler(sampling, drafter.vocabulary.size, prompt)
        for token in output:
            sampler.push(token)
        return sampler.survivors(row, len(output)).distance(one, other) < NOISE

    return parted


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_contract_of_long_texts(model: Path, sampling: Sampling) -> None:
    drafter = LlamaCppDrafter(model, streams=2, context=384)
    story = "The ferry left the harbour at nine, and nobody on it had paid. The captain counted them twice. "
    prompt = drafter.vocabulary.encode("Go on with this story.")
    text = (drafter.vocabulary.encode(story) * 30)[: 384 - len(prompt) - 5]
    check_long(drafter, prompt, text, text * 2, sampling, tie(drafter, prompt, sampling))
    drafter.close()


@pytest.mark.parametrize("drafted", [0, 1, 5])
def test_contract_of_streams_that_end(drafter: LlamaCppDrafter, drafted: int) -> None:
    prompt = prompt_of(drafter)
    check_cancelled(drafter, prompt, SEEDED, drafted, tie(drafter, prompt, SEEDED))


def test_the_next_turn_of_a_conversation_computes_only_what_is_new(drafter: LlamaCppDrafter) -> None:
    prompt = prompt_of(drafter)
    turn = drafter.begin(prompt, GREEDY)
    answer = take(turn, 6)
    turn.close()
    other = drafter.take_seat(drafter.vocabulary.encode("Something else altogether"))
    seat = drafter.take_seat([*prompt, *answer, *drafter.vocabulary.encode(" And then?")])
    assert seat is not None
    assert other is not None
    assert seat.tokens == [*prompt, *answer[:-1]], "its last token was proposed and not computed"
    seat.taken = other.taken = False
