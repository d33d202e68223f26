from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.drafters.scripted import ScriptedDrafter, repeating, right_with
from edge.protocol.frames import Sampling
from edge.script import Script, ScriptVocabulary
from tests.edge.drafters.contract import Operation, check, check_cancelled, check_long, operations, propose, samplings

GREEDY = Sampling(temperature=0, seed=0)
SCRIPT = Script(ScriptVocabulary())
PROMPT = SCRIPT.vocabulary.encode("a prompt")


@settings(max_examples=30)
@given(
    rate=st.floats(0, 1),
    sampling=samplings(),
    history=operations(st.integers(0, SCRIPT.vocabulary.size - 1), most=6),
)
def test_contract(rate: float, sampling: Sampling, history: list[Operation]) -> None:
    check(ScriptedDrafter(SCRIPT, right_with(rate)), PROMPT, sampling, history)


@settings(max_examples=5, deadline=None)
@given(rate=st.floats(0, 1), sampling=samplings())
def test_contract_of_long_texts(rate: float, sampling: Sampling) -> None:
    text = SCRIPT.vocabulary.encode("A long story. " * 40)
    check_long(ScriptedDrafter(SCRIPT, right_with(rate)), PROMPT, text, text * 4, sampling)


@settings(max_examples=10, deadline=None)
@given(rate=st.floats(0, 1), sampling=samplings(), drafted=st.integers(0, 6))
def test_contract_of_streams_that_end(rate: float, sampling: Sampling, drafted: int) -> None:
    check_cancelled(ScriptedDrafter(SCRIPT, right_with(rate)), PROMPT, sampling, drafted)


def test_right_drafts_are_the_targets_text() -> None:
    continuation = ScriptedDrafter(SCRIPT, right_with(1.0)).begin(PROMPT, GREEDY)
    assert propose(continuation, 20) == SCRIPT.greedy(PROMPT, 20)


def test_wrong_drafts_are_wrong_at_their_position_only() -> None:
    target = SCRIPT.greedy(PROMPT, 6)
    pattern = [True, False, True]
    continuation = ScriptedDrafter(SCRIPT, repeating(pattern)).begin(PROMPT, GREEDY)
    for position, token in enumerate(target):
        drafted = propose(continuation, 1)
        assert (drafted == [token]) == pattern[position % 3]
        continuation.rollback(position)
        continuation.feed([token])


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
def test_is_right_as_often_as_told(rate: float) -> None:
    right = right_with(rate, seed=5)
    share = sum(map(right, range(4000))) / 4000
    assert share == pytest.approx(rate, abs=0.03)
    assert [right(i) for i in range(50)] == [right_with(rate, seed=5)(i) for i in range(50)]


def test_each_token_takes_its_time() -> None:
    slept: list[float] = []
    drafter = ScriptedDrafter(SCRIPT, right_with(1.0), draft_s=0.01, sleep=slept.append, clock=lambda: 0.0)
    propose(drafter.begin(PROMPT, GREEDY), 3)
    assert slept == [0.01, 0.01, 0.01]
