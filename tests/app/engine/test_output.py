from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine.output import Output
from edge.protocol.frames import Grammar, Sampling
from edge.script import ScriptVocabulary
from tests.app.engine.requests import GREEDY, request

VOCABULARY = ScriptVocabulary()
END = VOCABULARY.end


def output_of(max_tokens: int = 100, **fields: Any) -> Output:
    return Output(request(**fields), VOCABULARY, max_tokens=max_tokens)


def saying(*tokens: int) -> Callable[[int], NDArray[np.float32]]:
    """Rows of logits whose best are `tokens`, and whose second best is "x"."""

    def logits(i: int) -> NDArray[np.float32]:
        row = np.zeros(VOCABULARY.size, np.float32)
        row[ord("x")] = 1.0
        row[tokens[i]] = 2.0
        return row

    return logits


def ids(text: str) -> list[int]:
    return [ord(character) for character in text]


def run(output: Output, tokens: Sequence[int], accepted: int = 0) -> tuple[tuple[int, ...], str | None]:
    picked = output.advance(tokens[:accepted], saying(*tokens))
    return picked.tokens, picked.reason


def test_accepted_drafts_and_the_targets_own_token() -> None:
    assert run(output_of(), ids("abc"), 2) == (tuple(ids("abc")), None)


def test_the_run_stops_at_the_first_difference() -> None:
    picked = output_of().advance(ids("aqc"), saying(*ids("abc")))
    assert picked.tokens == tuple(ids("ab"))


def test_the_end_token_within_the_accepted_run_cuts_it_and_stays() -> None:
    assert run(output_of(), [*ids("ab"), END, *ids("cd")], 4) == ((*ids("ab"), END), "stop")


def test_max_tokens_cuts_the_accepted_run() -> None:
    assert run(output_of(max_tokens=2), ids("abcd"), 3) == (tuple(ids("ab")), "length")


def test_a_stop_string_over_token_borders_cuts_text_and_tokens() -> None:
    output = output_of(stop=("tho",))
    th = VOCABULARY.encode("th")
    assert len(th) == 1
    assert run(output, ids("ab"), 1) == (tuple(ids("ab")), None)
    assert run(output, [*th, *ids("oz")], 2) == ((*th, ord("o")), "stop")
    assert output.kept_bytes == 2


def test_a_stop_string_that_began_in_what_was_carried_here_is_found() -> None:
    output = output_of(stop=("abc",))
    assert output.replay(ids("xab")) is None
    assert run(output, ids("c")) == (tuple(ids("c")), "stop")
    assert output.kept_bytes == 1


def test_before_min_tokens_the_end_token_is_not_picked() -> None:
    output = output_of(min_tokens=2)
    assert run(output, ids("a")) == (tuple(ids("a")), None)
    assert run(output, [END]) == ((ord("x"),), None)
    assert run(output, [END]) == ((END,), "stop")


def test_a_stop_string_complete_before_min_tokens_does_not_end_it() -> None:
    output = output_of(min_tokens=3, stop=("ab",))
    assert run(output, ids("ab"), 1) == (tuple(ids("ab")), None)
    assert run(output, ids("cab"), 2) == (tuple(ids("cab")), "stop")
    assert output.kept_bytes == 3


def test_a_grammar_that_is_through_ends_the_output_before_min_tokens() -> None:
    sampling = Sampling(temperature=0.0, grammar=Grammar("json_schema", '{"const": true}'))
    output = output_of(min_tokens=40, sampling=sampling)
    tokens = VOCABULARY.encode("true")
    assert run(output, [*tokens, END], len(tokens)) == ((*tokens, END), "stop")


@pytest.mark.parametrize(
    ("committed", "fields", "reason"),
    [
        (ids("abc"), {}, None),
        ([*ids("ab"), END], {}, "stop"),
        (ids("abcd"), {"stop": ("cd",)}, "stop"),
        (ids("a" * 5), {}, "length"),
    ],
)
def test_output_that_was_complete_when_it_came_says_so(
    committed: list[int], fields: dict[str, Any], reason: str | None
) -> None:
    assert output_of(max_tokens=5, **fields).replay(committed) == reason


def test_logprobs_are_given_for_what_is_published_only() -> None:
    output = output_of(max_tokens=2, logprobs=1)
    picked = output.advance(ids("abc"), saying(*ids("abcd")))
    assert [row.token for row in picked.logprobs] == ids("ab")
    assert all(row.top[0][0] == row.token for row in picked.logprobs)


def test_penalties_see_the_accepted_prefix() -> None:
    sampling = type(GREEDY)(temperature=0.0, frequency_penalty=1.5)
    output = output_of(sampling=sampling)
    assert run(output, ids("aa"), 1) == (tuple(ids("ax")), None)


def test_sampling_that_does_not_fit_the_vocabulary_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        output_of(sampling=type(GREEDY)(temperature=0.0, bias=((9999, 1.0),)))
