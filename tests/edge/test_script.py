from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.frames import Message
from edge.script import Script, ScriptVocabulary

VOCABULARY = ScriptVocabulary()


@given(st.text())
def test_any_text_survives_encoding(text: str) -> None:
    assert b"".join(map(VOCABULARY.piece, VOCABULARY.encode(text))).decode() == text


def test_markup_is_a_control_token_only_when_asked() -> None:
    assert VOCABULARY.encode("a<|end|>b", special=True) == [ord("a"), VOCABULARY.end, ord("b")]
    assert VOCABULARY.end not in VOCABULARY.encode("a<|end|>b")
    assert VOCABULARY.piece(VOCABULARY.end) == b""


def test_a_rendered_conversation_ends_where_the_answer_begins() -> None:
    ids = VOCABULARY.render([Message("system", "be"), Message("user", "hi")])
    assert ids.count(VOCABULARY.start) == 3
    assert b"".join(map(VOCABULARY.piece, ids)) == b"system\nbeuser\nhiassistant\n"


@pytest.mark.parametrize("change", [(1, 2, 4), (1, 3, 3), (2, 2, 3)])
def test_logits_depend_on_prompt_position_and_previous_token(change: tuple[int, int, int]) -> None:
    script = Script(VOCABULARY)
    logits = script.logits(1, 2, 3)
    assert logits.shape == (VOCABULARY.size,)
    assert np.array_equal(logits, Script(ScriptVocabulary()).logits(1, 2, 3))
    assert not np.array_equal(logits, script.logits(*change))
    assert not np.array_equal(logits, Script(VOCABULARY, seed=1).logits(1, 2, 3))


def test_an_output_ends_by_itself_at_its_length_and_not_before() -> None:
    output = Script(VOCABULARY, length=50).greedy((1, 2), 100)
    assert len(output) == 50
    assert output.index(VOCABULARY.end) == 49
    endless = Script(VOCABULARY).greedy((1, 2), 100)
    assert len(endless) == 100
    assert VOCABULARY.end not in endless
