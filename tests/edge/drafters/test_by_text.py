"""Drafts across tokenizers: whole tokens of the target's, a function of its tokens alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.byte_vocabulary import END, ByteVocabulary
from edge.drafters.base import Proposal
from edge.drafters.by_text import ByTextDrafter, shared_pieces
from edge.drafters.ngram import NgramDrafter
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Sampling
from edge.script import Script, ScriptVocabulary
from tests.edge.drafters.contract import Operation, check, check_cancelled, check_long, operations, propose, samplings

GREEDY = Sampling(temperature=0, seed=0)
SCRIPT = Script(ScriptVocabulary())
BYTES = ByteVocabulary()


def bytes_of(tokens: list[int]) -> bytes:
    return b"".join(map(BYTES.piece, tokens))


@settings(max_examples=30, deadline=None)
@given(
    rate=st.floats(0, 1),
    sampling=samplings(),
    history=operations(st.integers(0, BYTES.size - 1), most=6),
)
def test_contract(rate: float, sampling: Sampling, history: list[Operation]) -> None:
    inner = ScriptedDrafter(SCRIPT, right_with(rate))
    check(ByTextDrafter(inner, BYTES), BYTES.encode("a prompt"), sampling, history)


@settings(max_examples=30, deadline=None)
@given(sampling=samplings(), history=operations(st.integers(0, SCRIPT.vocabulary.size - 1), most=6))
def test_contract_there_and_back(sampling: Sampling, history: list[Operation]) -> None:
    there = ByTextDrafter(ScriptedDrafter(SCRIPT, right_with(0.8)), BYTES)
    check(ByTextDrafter(there, SCRIPT.vocabulary), SCRIPT.vocabulary.encode("a prompt"), sampling, history)


@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_contract_of_long_texts(rate: float) -> None:
    text = BYTES.encode("a long story, told twice. " * 12)
    drafter = ByTextDrafter(ScriptedDrafter(SCRIPT, right_with(rate)), BYTES)
    check_long(drafter, BYTES.encode("a prompt"), text, text * 2, GREEDY)


@pytest.mark.parametrize("drafted", [0, 1, 5])
def test_contract_of_streams_that_end(drafted: int) -> None:
    drafter = ByTextDrafter(ScriptedDrafter(SCRIPT, right_with(0.8)), BYTES)
    check_cancelled(drafter, BYTES.encode("a prompt"), GREEDY, drafted)


def test_it_says_in_bytes_what_the_drafter_says_in_pairs() -> None:
    prompt = "tell me"
    said = SCRIPT.greedy(SCRIPT.vocabulary.encode(prompt), 30)
    text = b"".join(SCRIPT.vocabulary.piece(token) for token in said)
    drafter = ByTextDrafter(ScriptedDrafter(SCRIPT, right_with(1.0)), BYTES)
    continuation = drafter.begin(BYTES.encode(prompt), GREEDY)
    # What the script says depends on its own cut into tokens, so the two part where that isn't the encoding's.
    assert bytes_of(propose(continuation, 6)) == text[:6]
    assert drafter.fingerprint == BYTES.fingerprint


class Says:
    """Drafts this text, byte by byte, then an end."""

    name = "says"
    fingerprint = BYTES.fingerprint
    vocabulary: Vocabulary | None = BYTES

    def __init__(self, text: str) -> None:
        self.tokens = [*text.encode(), END]

    def begin(
        self, prompt: Sequence[int], sampling: Sampling, *, committed: Sequence[int] = (), coupled: bool = True
    ) -> ScriptedLine:
        return ScriptedLine(self.tokens)

    def close(self) -> None: ...


class ScriptedLine:
    def __init__(self, tokens: list[int]) -> None:
        self._tokens, self._at = tokens, 0

    def propose(self) -> Proposal | None:
        if self._at >= len(self._tokens):
            return None
        self._at += 1
        return Proposal(self._tokens[self._at - 1], 0.5)

    def rollback(self, length: int) -> None:
        self._at = length

    def feed(self, tokens: Sequence[int]) -> None:
        self._at += len(tokens)

    def close(self) -> None: ...


def test_only_whole_tokens_are_proposed_and_the_end_where_both_know_it() -> None:
    vocabulary = SCRIPT.vocabulary
    text = "the stone"
    drafter = ByTextDrafter(Says(text), vocabulary, markup={vocabulary.end: "<|end|>"}, own={END: "<|end|>"})
    tokens = propose(drafter.begin(vocabulary.encode("say"), GREEDY), 20)
    assert tokens == [*vocabulary.encode(text), vocabulary.end]
    without = ByTextDrafter(Says(text), vocabulary)
    assert propose(without.begin(vocabulary.encode("say"), GREEDY), 20) == vocabulary.encode(text)


def test_half_a_character_is_completed_or_left() -> None:
    drafter = ByTextDrafter(Says("é!"), BYTES)
    continuation = drafter.begin(BYTES.encode("p"), GREEDY)
    first, second = "é".encode()
    continuation.feed([first])
    assert propose(continuation, 2) == [second, ord("!")]
    continuation.rollback(0)
    continuation.feed([0xE2])
    assert continuation.propose() is None, "it would say another character"


def test_what_has_no_tokenizer_needs_no_translation() -> None:
    with pytest.raises(ValueError, match="no tokenizer"):
        ByTextDrafter(NgramDrafter(), BYTES)


def test_shared_pieces() -> None:
    assert shared_pieces(BYTES, SCRIPT.vocabulary) == 256
    assert shared_pieces(BYTES, BYTES) == 256
