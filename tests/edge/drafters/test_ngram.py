from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.drafters.ngram import NgramDrafter
from edge.protocol.frames import Sampling
from tests.edge.drafters.contract import Operation, check, check_cancelled, check_long, operations, propose, samplings

GREEDY = Sampling(temperature=0, seed=0)
FEW = st.integers(0, 3)  # so that texts repeat themselves


@given(prompt=st.lists(FEW, min_size=1, max_size=20), sampling=samplings(), history=operations(FEW))
def test_contract(prompt: list[int], sampling: Sampling, history: list[Operation]) -> None:
    check(NgramDrafter(), prompt, sampling, history)


@settings(max_examples=20, deadline=None)
@given(text=st.lists(FEW, min_size=200, max_size=400), sampling=samplings())
def test_contract_of_long_texts(text: list[int], sampling: Sampling) -> None:
    check_long(NgramDrafter(), [1, 2, 1, 2], text, text * 5, sampling)


@given(sampling=samplings(), drafted=st.integers(0, 6))
def test_contract_of_streams_that_end(sampling: Sampling, drafted: int) -> None:
    check_cancelled(NgramDrafter(), [1, 2, 3, 1, 2, 3], sampling, drafted)


@given(
    tokens=st.lists(FEW, min_size=1, max_size=40),
    shortest=st.integers(1, 3),
    more=st.integers(0, 2),
    split=st.integers(0),
)
def test_proposes_what_followed_the_latest_longest_match(
    tokens: list[int], shortest: int, more: int, split: int
) -> None:
    prompt = 1 + split % len(tokens)
    drafter = NgramDrafter(longest=shortest + more, shortest=shortest)
    continuation = drafter.begin(tokens[:prompt], GREEDY, committed=tokens[prompt:])
    proposal = continuation.propose()
    assert (None if proposal is None else proposal.token) == searched(tokens, shortest, shortest + more)


def searched(tokens: list[int], shortest: int, longest: int) -> int | None:
    """The same by plain search."""
    for length in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[-length:]:
                return tokens[end]
    return None


def test_goes_on_while_the_text_repeats() -> None:
    continuation = NgramDrafter().begin([1, 2, 3, 4, 5, 6, 9, 1, 2], GREEDY)
    assert propose(continuation, 5) == [3, 4, 5, 6, 9]


def test_goes_round_and_round_in_a_loop() -> None:
    assert propose(NgramDrafter().begin([7, 8, 7, 8], GREEDY), 5) == [7, 8, 7, 8, 7]


def test_a_longer_match_is_worth_more() -> None:
    long, short = [1, 2, 3, 4, 5, 1, 2, 3, 4], [1, 2, 9, 3, 1, 2]
    confidences = [
        proposal.confidence
        for proposal in (NgramDrafter().begin(prompt, GREEDY).propose() for prompt in (long, short))
        if proposal is not None
    ]
    assert confidences == [4 / 5, 2 / 3]


def test_nothing_to_propose_without_a_match() -> None:
    continuation = NgramDrafter().begin([1, 2, 3], GREEDY)
    assert continuation.propose() is None
    continuation.feed([1, 2])
    assert propose(continuation, 1) == [3]


@pytest.mark.parametrize(("longest", "shortest"), [(1, 2), (3, 0)])
def test_refuses_lengths_that_cannot_be(longest: int, shortest: int) -> None:
    with pytest.raises(ValueError, match="must hold"):
        NgramDrafter(longest=longest, shortest=shortest)


def test_the_chance_of_a_copied_run_falls_as_the_matchs_length_over_all_of_it() -> None:
    text = [*range(10, 20), 1, *range(10, 14)]
    continuation = NgramDrafter(longest=4).begin(text, GREEDY)
    survival = 1.0
    for n in range(1, 5):
        proposal = continuation.propose()
        assert proposal is not None
        survival *= proposal.confidence
        assert survival == pytest.approx(4 / (4 + n))
    continuation.rollback(0)
    again = continuation.propose()
    assert again is not None
    assert again.confidence == pytest.approx(4 / 5)
