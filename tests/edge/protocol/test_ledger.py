"""The committed output only grows, by position, without holes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.errors import Contradiction, Gap
from edge.protocol.ledger import Ledger, agreement

runs = st.lists(st.integers(0, 3), max_size=12)


def test_what_overlaps_is_compared_and_the_rest_appended() -> None:
    ledger = Ledger([1, 2, 3])
    assert ledger.apply(1, [2, 3, 4, 5]) == (4, 5)
    assert ledger.tokens == [1, 2, 3, 4, 5]
    assert len(ledger) == 5


def test_a_commit_that_is_wholly_known_changes_nothing() -> None:
    ledger = Ledger([1, 2, 3])
    assert ledger.apply(0, [1, 2]) == ()
    assert ledger.apply(3, []) == ()
    assert ledger.tokens == [1, 2, 3]


@pytest.mark.parametrize(("start", "tokens"), [(4, [9]), (4, []), (2**53, [1])])
def test_a_hole_is_an_error(start: int, tokens: list[int]) -> None:
    ledger = Ledger([1, 2, 3])
    with pytest.raises(Gap):
        ledger.apply(start, tokens)
    assert ledger.tokens == [1, 2, 3]


@pytest.mark.parametrize(("start", "tokens"), [(0, [9]), (2, [9, 4]), (1, [2, 9])])
def test_an_overlap_that_differs_is_an_error_and_nothing_of_it_is_taken(start: int, tokens: list[int]) -> None:
    ledger = Ledger([1, 2, 3])
    with pytest.raises(Contradiction):
        ledger.apply(start, tokens)
    assert ledger.tokens == [1, 2, 3]


def test_it_does_not_share_its_list() -> None:
    committed = [1]
    ledger = Ledger(committed)
    committed.append(2)
    assert ledger.tokens == [1]


@given(runs, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8))
def test_any_commits_of_one_text_in_any_order_give_a_prefix_of_it(text: list[int], cuts: list[tuple[int, int]]) -> None:
    ledger = Ledger()
    for start, end in cuts:
        held = len(ledger)
        part = text[start:end]
        if min(start, len(text)) <= held:
            assert list(ledger.apply(min(start, len(text)), part)) == text[held : max(held, min(end, len(text)))]
        assert ledger.tokens == text[: len(ledger)]


@given(runs, runs)
def test_agreement_is_the_common_prefix(a: list[int], b: list[int]) -> None:
    n = agreement(a, b)
    assert a[:n] == b[:n]
    assert n in (len(a), len(b)) or a[n] != b[n]
